"""What stands beside the text of a page in words: pointers to other pages, credits, invitations to subscribe.

In the languages that most pages are in. They only decide about short blocks.
"""

from __future__ import annotations

import re
from typing import Final

ASIDE: Final = re.compile(
    r"""^\W*(?:
      read\ (?:more|also|next|the\ full)|more\ (?:from|on|about)|see\ also|also\ read|related|share|follow\
      |sign\ up|subscribe|advertis|
      photo(?:graph)?\b|image\b|picture\b|copyright|©|all\ rights|click\ here|download\ |tags?\b|filed\ under
      |posted\ (?:in|by|on)|published\b|updated\b|last\ updated|
      by\ \w+\ \w+$|loading|comments?\b|leave\ a|reply|print\b|e-?mail\b|source:|credit|via\b|
      lesen\ sie|lies\ auch|mehr\ zum|mehr\ dazu|foto\b|bild\b|quelle|anzeige|teilen|kommentar|schlagw|stand:
      |von\ \w+\ \w+$|
      lire\ aussi|à\ lire|voir\ aussi|partager|lea\ también|le\ puede|te\ puede|ver\ más|leia\ (?:mais|também)
      |veja\ (?:mais|também)|leggi\ anche
    )""",
    re.VERBOSE | re.IGNORECASE,
)
"""How a block begins that is no part of the text."""
PROMOTION: Final = re.compile(
    r"""newsletter|sign(?:ing)?\ up|subscri|abonnier|suscr[ií]b|abonne[rz]|inscri[vb]
      |follow\ (?:us|me|him|her|our|the|@)|folge[nt]?\ (?:uns|mir|sie)|s[ií]guenos|siga-nos|suivez
    |facebook|twitter|instagram|telegram|whatsapp|youtube|pinterest|linkedin|\bapps?\ for\b|app\ store
      |google\ (?:play|news)
    |all\ rights\ reserved|alle\ rechte\ vorbehalten|tous\ droits|todos\ los\ derechos|©|hinterlass
      |leave\ a\ comment|comments?\ (?:below|are)|kommentar
    |könnte\ (?:dich|sie|euch)\ auch|auch\ interessieren|you\ (?:may|might)\ also|zum\ thema
      |zobacz\ (?:także|też)|czytaj\ (?:także|też|również)|subskry
    |have\ a\ tip|reach(?:ed)?\ (?:him|her|us)?\ ?at|contact\ us|support\ (?:us|our)|donat(?:e|ion)|spende""",
    re.VERBOSE | re.IGNORECASE,
)
"""What a block says that asks for something."""
