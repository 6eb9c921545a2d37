"""The DAG: what follows what, and the command line."""
