"""`python -m onpro` is the command `onpro`."""

import sys

from onpro.cli import main

sys.exit(main())
