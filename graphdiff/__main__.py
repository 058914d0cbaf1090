"""`python -m graphdiff` is `graphdiff`."""

import sys

from graphdiff.cli.main import main

sys.exit(main())
