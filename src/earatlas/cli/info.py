"""`earatlas info`: description of a head or of an atlas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from earatlas.atlas import Atlas
from earatlas.cli.app import Command, command_app, examples
from earatlas.cli.console import out, print_json, print_line, progress
from earatlas.cli.options import (
    ChannelsOption,
    Duplicates,
    DuplicatesOption,
    FieldOfViewOption,
    ForceOption,
    HeadOptions,
    ImageSizeOption,
    JsonOption,
    Kind,
    KindOption,
    WrongWayOption,
    read_head,
)
from earatlas.cli.outputs import OutputFiles, atlas_header
from earatlas.cli.verdict_text import verdict_fields
from earatlas.errors import InputError
from earatlas.hrtf.diagnosis import HeadReport, coverage_map, diagnose, format_coverage
from earatlas.hrtf.head import Head
from earatlas.localization.learned_head import LearnedHead
from earatlas.packaged_atlases import PEOPLE, PEOPLE_ATLAS
from earatlas.wording import format_error, unit_field

__all__ = ["app", "info"]

app = command_app()


@app.command(
    cls=Command,
    epilog=examples(
        "earatlas info ku100.sofa --plot ku100.png",
        "earatlas info simulated",
        "earatlas info measurements.csv --sofa head.sofa",
        "earatlas info ku100.atlas",
        "earatlas info people",
    ),
)
def info(
    head: Annotated[
        str,
        typer.Argument(
            metavar="HEAD",
            help="Head (a .sofa file, a .csv table, 'simulated' or 'kemar'), .atlas file, or "
            "'people' for the built-in atlas.",
        ),
    ],
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plot the head (.png, .svg, .pdf).")
    ] = None,
    sofa: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the impulse responses of the head (.sofa)."),
    ] = None,
    kind: KindOption = Kind.auto,
    channels: ChannelsOption = (0, 1),
    duplicates: DuplicatesOption = Duplicates.error,
    wrong_way: WrongWayOption = None,
    image_size: ImageSizeOption = None,
    field_of_view: FieldOfViewOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Describe a head or an atlas.

    For a head: directions, coverage, symmetry, and what limits the localization. For an atlas: its
    head, held-out errors and cues.
    """
    people = head == PEOPLE and not Path(head).exists()
    if people or Path(head).suffix.lower() == ".atlas" or atlas_header(Path(head)) is not None:
        if plot is not None or sofa is not None:
            option = "--plot" if plot is not None else "--sofa"
            raise InputError(
                f"{option} must be used with a head, got the atlas '{head}'. Name the head instead."
            )
        _print_atlas(PEOPLE_ATLAS if people else Path(head), as_json=as_json)
        return
    outputs = OutputFiles(force=force)
    if plot is not None:
        outputs.claim_picture(plot)
    if sofa is not None:
        outputs.claim(sofa, lambda path: False, "sofa")
    options = HeadOptions(kind, channels, duplicates, wrong_way, image_size, field_of_view)
    measured = read_head(head, options, diagnosed=True)
    if sofa is not None:
        from earatlas.hrtf.sofa_writer import write_sofa

        write_sofa(measured, sofa)
    _print_head(measured, plot, sofa, as_json=as_json)
    outputs.report()


def _print_head(head: Head, plot: Path | None, sofa: Path | None, *, as_json: bool) -> None:
    """Print the diagnosis of a head, and plot it; `sofa` is the file that it was written to."""
    with progress("measuring"):
        report = diagnose(head)
    if plot is not None:
        from earatlas.plotting.heads import plot_head
        from earatlas.plotting.style import save

        with progress("plotting"):
            save(plot_head(head), plot)
    if as_json:
        written = {"plot": plot, "sofa": sofa}
        print_json({**report.to_dict(), **{k: v and str(v) for k, v in written.items()}})
        return
    _print_rows(_head_rows(head, report))
    if head.plane is None:
        out.print()
        out.print(_coverage_text(head), highlight=False)
    for warning in report.warnings:
        out.print(f"[yellow]warning:[/] {escape(warning)}", highlight=False)
    if plot is not None:
        print_line(f"picture: {plot}")
    if sofa is not None:
        print_line(f"head: {sofa}")


def _print_rows(rows: dict[str, str]) -> None:
    """Print names and values as a table."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for key, value in rows.items():
        table.add_row(key, escape(value))
    out.print(table, highlight=False)


def _head_rows(head: Head, report: HeadReport) -> dict[str, str]:
    """Return the table rows of a head."""
    return {
        "head": report.name,
        "origin": report.provenance or "-",
        "licence": report.licence,
        head.label_name: f"{report.directions}, "
        f"{format_error(head.space, head.space.unit_scale * report.spacing_degrees)} apart "
        f"(median), on the {report.space}",
        "coverage": format_coverage(head.space, head.directions, report.spacing_degrees),
        "responses": "none: mean cues of noise recordings"
        if report.rate is None
        else f"{report.taps} samples at {report.rate:g} Hz",
        **({} if head.plane is not None else _symmetry_rows(report)),
    }


def _symmetry_rows(report: HeadReport) -> dict[str, str]:
    """Return the table rows about the symmetry of a head."""
    return {
        "asymmetry": f"{_format_db(report.mirror_ild_db)} between the two ears after mirroring",
        "median plane": f"{_format_db(report.median_plane_ild_db)} level difference (RMS)",
    }


def _format_db(decibels: float) -> str:
    """Format decibels with one decimal."""
    return "not measured" if np.isnan(decibels) else f"{decibels:.1f} dB"


def _coverage_text(head: Head) -> str:
    """Return `coverage_map` as text; darker characters mean denser measurements."""
    density = coverage_map(head)
    shades = " ░▒▓█"
    level = np.ceil(np.minimum(density, 1.0) * (len(shades) - 1)).astype(int)
    names = {0: "up 90°", len(density) // 2: "0°", len(density) - 1: "-90°"}
    lines = [
        f"{names.get(row, ''):>7} ▕{''.join(shades[v] * 2 for v in cells)}▏"
        for row, cells in enumerate(level)
    ]
    scale = "".join(f"{name:^15}" for name in ("left", "front", "right"))
    return "\n".join([*lines, f"{'':9}behind {scale}  behind"])


def _print_atlas(path: Path, *, as_json: bool) -> None:
    """Print the description of an atlas."""
    facts = _atlas_facts(path)
    if as_json:
        print_json(facts)
    else:
        _print_rows(_atlas_rows(facts))


def _atlas_facts(path: Path) -> dict[str, Any]:
    """Return the description of an atlas as JSON values."""
    atlas = Atlas.load(path)
    header = atlas_header(path)
    return {
        "atlas": str(path),
        **atlas.about,  # head, licence, provenance, directions, left_out, spacing_degrees, seed
        "coverage": _coverage(atlas),
        "space": atlas.space.name,
        "components": len(atlas.model.weights),
        "rooms": atlas.reverberant_localizer is not None,
        **_population_facts(atlas),
        "held_out": None if atlas.accuracy is None else atlas.accuracy.in_units(atlas.space),
        **_image_facts(atlas),
        **verdict_fields(atlas),
        "cues": {**atlas.layout.to_dict(), "n_cues": atlas.layout.n_cues},
        "version": None if header is None else header.get("version"),
        "bytes": path.stat().st_size,
    }


def _image_facts(atlas: Atlas) -> dict[str, Any]:
    """Return image and spacing of an atlas of positions; nothing for directions."""
    space = atlas.space
    if not unit_field(space):
        return {}
    spacing = space.unit_scale * atlas.about["spacing_degrees"]
    return {"image": space.to_dict(), f"spacing_{space.unit_name}": round(spacing, 1)}


def _population_facts(atlas: Atlas) -> dict[str, Any]:
    """Return the members of a population and whether it is adapted; nothing for a single head."""
    from earatlas.population_atlas import PopulationAtlas

    if not isinstance(atlas, PopulationAtlas):
        return {}
    return {
        "members": [member.name for member in atlas.members if member.problem is None],
        "omitted_heads": {
            member.name: str(member.problem) for member in atlas.members if member.problem
        },
        "adapted": atlas.listener is not None,
    }


def _coverage(atlas: LearnedHead) -> str | None:
    """Return the measured region of the head in words, or None if it is not stored."""
    coverage = atlas.about.get("coverage")
    if coverage is None and atlas.reverberant_localizer is not None:
        sound = atlas.reverberant_localizer.direct_sound
        return format_coverage(
            sound.space, sound.templates.directions, atlas.about.get("spacing_degrees", 0.0)
        )
    return coverage


def _atlas_rows(facts: dict[str, Any]) -> dict[str, str]:
    """Return the table rows of an atlas."""
    left_out, errors = facts.get("left_out"), facts["held_out"]
    return {
        "head": facts["head"],
        **_population_rows(facts),
        "origin": facts.get("provenance") or "-",
        "licence": facts.get("licence") or "unknown",
        "positions" if "image" in facts else "directions": f"{facts.get('directions', '?')}"
        f"{_format_spacing(facts)}, "
        f"on the {facts['space']}"
        + (f"; {left_out} outside the {facts['space']} omitted" if left_out else ""),
        "coverage": facts["coverage"] or "not stored in this atlas",
        "charts": str(facts["components"])
        + (", ready for reverberant rooms" if facts["rooms"] else ""),
        "held out": _missing_accuracy(facts) if errors is None else _format_accuracy(facts),
        "good for": ", ".join(facts["good_for"]) or "nothing",
        **({"not for": ", ".join(facts["not_for"])} if facts["not_for"] else {}),
        **({"limits": "\n".join(facts["limitations"])} if facts["limitations"] else {}),
        "cues": _format_cues(facts["cues"]),
        "file": f"{facts['bytes'] / 1e6:.1f} MB, format version {facts['version']}",
    }


def _format_accuracy(facts: dict[str, Any]) -> str:
    """Describe the held-out errors."""
    errors = facts["held_out"]
    if "image" in facts:
        unit = facts["image"]["unit"]
        return f"{errors['held_out']} positions, median error {errors[f'median_{unit}']:.1f} {unit}"
    return (
        f"{errors['held_out']} directions, median error {errors['median_degrees']:.2f}°, "
        f"{100 * errors['beyond_30_share']:.1f} % beyond 30°"
    )


def _missing_accuracy(facts: dict[str, Any]) -> str:
    """Say why the held-out errors are not known."""
    if facts.get("adapted"):
        return "not measured after the adaptation"
    return "not measured: too few directions"


def _format_spacing(facts: dict[str, Any]) -> str:
    """Describe the spacing of the directions; the heads of a population may differ in it."""
    if "members" in facts:
        return " per head (median)"
    if "image" in facts:
        unit = facts["image"]["unit"]
        return f", {facts[f'spacing_{unit}']:g} {unit} apart (median)"
    return f", {facts.get('spacing_degrees', '?')}° apart (median)"


def _population_rows(facts: dict[str, Any]) -> dict[str, str]:
    """Return the table rows of a population; none for a single head."""
    if "members" not in facts:
        return {}
    adapted = "adapted to recordings" if facts["adapted"] else "unknown: not adapted yet"
    match facts.get("adaptation"):
        case {"segments": int(segments), "gain_nats": float(gain)}:
            adapted += f" ({segments} segments, held-out gain {gain:+.2f} nats per segment)"
    rows = {"members": str(len(facts["members"])), "listener": adapted}
    omitted = [f"{name} ({problem})" for name, problem in facts["omitted_heads"].items()]
    return rows | ({"omitted heads": "; ".join(omitted)} if omitted else {})


def _format_cues(cues: dict[str, Any]) -> str:
    """Describe the frequency bands of the ILD and IPD cues, and the frames of the STFT."""
    bands = [
        f"{name} {band[0]:g} … {band[1]:g} Hz"
        for name, band in (("ILD", cues["ild_band_hz"]), ("IPD", cues["ipd_band_hz"]))
        if band is not None
    ]
    return (
        f"{cues['n_cues']} ({', '.join(bands)}), windows of {cues['window']} samples every "
        f"{cues['hop']}, at {cues['rate']} Hz"
    )
