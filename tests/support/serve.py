"""`radixrt serve` as a process, with a scripted worker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.processes import children_of, wait_until

WITH_SCRIPTED_WORKER = """
from radixrt.client import worker_process
from tests.support.processes import SCRIPTED_WORKER
worker_process.WORKER_COMMAND = SCRIPTED_WORKER
from radixrt.cli import main
main()
"""
LOAD_SECONDS = 120


class Serve:
    """A running `radixrt serve`. `url` once `wait_ready` has returned."""

    def __init__(self, model: str, home: Path, *options: str) -> None:
        self._output = (home / "output").open("wb")
        command = [sys.executable, "-c", WITH_SCRIPTED_WORKER, "serve", "--model", model, *options]
        # Temporary files of the server and its worker lie in a folder of this test.
        environment = os.environ | {"TMPDIR": str(home), "PYTHONWARNINGS": "default"}
        self.process = subprocess.Popen(command, stdout=self._output, stderr=subprocess.STDOUT, env=environment)
        self._home = home
        self.url = ""

    @property
    def output(self) -> str:
        return (self._home / "output").read_text()

    @property
    def sockets(self) -> list[Path]:
        return list(self._home.glob("radixrt-*"))

    def wait_ready(self) -> int:
        """The worker's process id."""

        def announced() -> bool:
            assert self.process.poll() is None, self.output
            return "radixrt is ready at" in self.output

        wait_until(announced, LOAD_SECONDS)
        (self.url,) = re.findall(r"^radixrt is ready at (http\S+)$", self.output, re.MULTILINE)
        (worker,) = children_of(self.process.pid)
        return worker

    def end(self) -> int:
        """The exit status."""
        try:
            return self.process.wait(60)
        finally:
            self._output.close()
