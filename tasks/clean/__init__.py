"""Documents: repaired, judged, freed of copies, put in a global order."""
