"""A comparison as a picture: hit rates against the optimum, and times to first token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from radixrt.errors import BackendUnavailable, InvalidRequest
from radixrt.simulate.report import Report
from radixrt.simulate.setups import Setup


def check_plot(path: Path) -> None:
    """Raise `InvalidRequest` if no PNG can be written there, `BackendUnavailable` if matplotlib is not installed."""
    if path.suffix.lower() != ".png":
        raise InvalidRequest(f"plot is {str(path)!r}; it must end in .png", field="plot")
    if not path.absolute().parent.is_dir():
        raise InvalidRequest(f"plot: there is no folder {path.absolute().parent}", field="plot")
    try:
        import matplotlib  # noqa: F401  # only to see whether it is there
    except ModuleNotFoundError:
        raise BackendUnavailable("a plot needs matplotlib: pip install 'radixrt[dev]'", field="plot") from None


def plot(path: Path, setups: Sequence[Setup], reports: Sequence[Report], optimum: float) -> None:
    """Write the PNG; `optimum` is the hit rate of a cache that never forgets. Raises as `check_plot`."""
    check_plot(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 1.6 + 0.4 * len(setups)), layout="constrained")
    FigureCanvasAgg(figure)
    hits, times = figure.subplots(1, 2, sharey=True)
    places = range(len(setups))
    hits.barh(places, [100 * report.hit_rate for report in reports], color="tab:blue")
    hits.axvline(100 * optimum, color="black", linestyle="--", label="optimum")
    hits.set_yticks(list(places), [setup.name for setup in setups])
    hits.invert_yaxis()
    hits.set_xlabel("prompt tokens from the cache, %")
    hits.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))
    times.barh(places, [report.ttft_p99 for report in reports], color="tab:red", label="p99")
    times.barh(places, [report.ttft_p90 for report in reports], color="tab:orange", label="p90")
    times.barh(places, [report.ttft_p50 for report in reports], color="tab:green", label="p50")
    times.set_xlabel("time to first token, simulated seconds")
    times.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    figure.savefig(path, dpi=120)
