"""Simulated trainings: throughput against the number of ranks. Pure."""

from matplotlib.figure import Figure

from wagma.report.document import Part, Plot, Section, table
from wagma.report.records import Found, Simulation
from wagma.simulate.plots import numbers, pictures
from wagma.simulate.rows import cells


def simulated(found: Found) -> Section:
    """Show the rows of simulations."""
    text = ("No rank was started: python -m wagma simulate predicts these figures.",)
    parts = tuple(map(_part, found.simulations))
    return Section("simulated", "Simulated trainings", parts, text)


def _part(simulation: Simulation) -> Part:
    rows = [dict(row) for row in simulation.rows]
    [throughput, *_] = pictures(simulation.what)

    def draw(figure: Figure) -> None:
        throughput.draw(figure, numbers(rows))

    head, *lines = cells(rows)
    return Part(
        simulation.what,
        plot=Plot("simulated", throughput.title, draw, throughput.inches[1], wide=True),
        tables=(table("Simulated figures", tuple(head), map(tuple, lines)),),
        files=(simulation.path,),
    )
