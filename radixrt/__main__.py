"""`python -m radixrt` is the `radixrt` command."""

from __future__ import annotations

from radixrt.cli import main

main()
