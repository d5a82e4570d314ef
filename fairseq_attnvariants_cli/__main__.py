"""``python -m fairseq_attnvariants_cli``."""

from .main import main

raise SystemExit(main())
