"""How a rebuild went: one JSON object for schedulers, one Markdown page for people."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from catalog.errors import one_line
from catalog.staleness import State, Verdict
from jobs.errors import DONE
from jobs.rebuild import RebuildOptions, RebuildResult

_MOST_ROWS = 500
"""Clips that the page for people lists; the JSON has all."""


def summary_json(options: RebuildOptions, result: RebuildResult) -> dict[str, Any]:
    """Everything that a scheduler may want to act on."""
    rendered, published = result.rendered, result.published
    before, now = result.plan.roster.release, result.release
    return {
        "event": "rebuild",
        "tool": f"loudkit-batch {version('loudkit-batch')}",
        "ended_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "elapsed_s": round(result.elapsed_s, 3),
        "exit_code": result.exit_code,
        "published": options.published,
        "nothing_stale": not result.plan.to_render,
        "clips": result.plan.counts,
        "to_render": sorted(result.plan.to_render),
        "rendered": rendered.counts.rendered if rendered else 0,
        "remade_for_identity": sorted(rendered.remade) if rendered else [],
        "failed": [asdict(each) for each in rendered.counts.failures] if rendered else [],
        "interrupted": bool(rendered and rendered.interrupted),
        "stopped": rendered.stopped if rendered else None,
        "release_before": before.id if before else None,
        "release": now.id if now else None,
        "is_new_release": bool(published and published.is_new),
        "races_lost": published.races_lost if published else 0,
        "recorded_anew": sorted(published.choice.fresh) if published else [],
        "removed": sorted(published.choice.removed) if published else [],
        "not_renewed": dict(published.choice.not_renewed) if published else {},
        "verdicts": [
            each.as_json() for each in result.plan.verdicts if each.state != State.CURRENT
        ],
    }


def headline(summary: dict[str, Any]) -> str:
    """One line that says how it ended."""
    place, release = summary["published"], summary["release"]
    if summary["interrupted"]:
        return f"{place}: interrupted, nothing was published; the same command goes on from here"
    failed = len(summary["failed"])
    if summary["is_new_release"]:
        anew, removed = len(summary["recorded_anew"]), len(summary["removed"])
        told = f"{place}: published release {release}, {anew} recorded anew"
        told += f", {summary['clips']['current']} current"
        told += f", {removed} removed" if removed else ""
        told += f", {failed} failed and not renewed" if failed else ""
        if not (anew or removed or failed):
            told += "; what is told of the clips has changed, no clip has"
        return told + _kept_orphans(summary)
    if summary["stopped"] or failed:
        return f"{place}: {failed} failed, nothing was published; readers still get " + (
            f"release {release}" if release else "what was there"
        )
    current = summary["clips"]["current"]
    return f"{place}: nothing stale, all {current} planned clips are current" + _kept_orphans(
        summary
    )


def _kept_orphans(summary: dict[str, Any]) -> str:
    count = sum(
        each["state"] == State.ORPHANED and each["render"] not in summary["removed"]
        for each in summary["verdicts"]
    )
    kept = "clip that nobody plans is kept" if count == 1 else "clips that nobody plans are kept"
    return f"; {count} {kept}, --remove-orphans takes them away" if count else ""


def summary_markdown(summary: dict[str, Any]) -> str:
    """The same for people."""
    lines = [
        f"# {_title(summary)} {_code(summary['published'])}",
        "",
        _cell(headline(summary)) + ".",
        "",
        "| state | clips |",
        "| --- | --- |",
        *(f"| {state} | {count} |" for state, count in summary["clips"].items()),
        "",
    ]
    if summary["verdicts"]:
        lines += ["## What was not current", "", "| clip | state | why |", "| --- | --- | --- |"]
        removed = set(summary["removed"])
        lines += [_row(each, removed) for each in summary["verdicts"][:_MOST_ROWS]]
        lines += _more(len(summary["verdicts"]))
    if summary["failed"]:
        lines += ["## What failed", "", "| clip | code | message |", "| --- | --- | --- |"]
        lines += [
            f"| {_code(each['render'])} | {each['code']} | {_cell(each['message'])} |"
            for each in summary["failed"][:_MOST_ROWS]
        ]
        lines += _more(len(summary["failed"]))
    if summary["not_renewed"]:
        lines += ["## What the release could not renew", "", "| clip | why |", "| --- | --- |"]
        lines += [f"| {_code(key)} | {_cell(why)} |" for key, why in summary["not_renewed"].items()]
        lines += [""]
    lines += [f"{summary['tool']}, {summary['elapsed_s']} s, exit code {summary['exit_code']}"]
    return "\n".join(lines) + "\n"


def verdict_line(verdict: Verdict) -> str:
    """A clip in the table that `plan --published` prints."""
    told = "; ".join(map(str, verdict.reasons))
    return f"{verdict.key}: {verdict.state}" + (f", {told}" if told else "")


def _title(summary: dict[str, Any]) -> str:
    if summary["exit_code"] != DONE:
        return "Rebuilt in part:" if summary["is_new_release"] else "Not rebuilt:"
    return "Rebuilt" if summary["is_new_release"] else "Looked at"


def _row(verdict: dict[str, Any], removed: Collection[str]) -> str:
    why = "; ".join(
        each["recorded"]
        if each["fact"] == "audio"
        else f"{each['fact']}: {each['recorded']} → {each['wanted']}"
        for each in verdict["reasons"]
    )
    if verdict["state"] == State.MISSING:
        why = "no such clip is published"
    if verdict["state"] == State.ORPHANED:
        kept = "removed" if verdict["render"] in removed else "kept"
        why = f"the catalog no longer asks for it; {kept}" + (f"; {why}" if why else "")
    return f"| {_code(verdict['render'])} | {verdict['state']} | {_cell(why)} |"


def _more(count: int) -> list[str]:
    return [f"| … | {count - _MOST_ROWS} more |", ""] if count > _MOST_ROWS else [""]


def _code(text: str) -> str:
    """A code span that no text can leave."""
    return "`" + one_line(text).replace("`", "'").replace("|", "\\|") + "`"


def _cell(text: str) -> str:
    """Text in a table, where it is neither markup nor another column."""
    text = one_line(text)
    for char in "\\`*_[]<>|#&~":
        text = text.replace(char, "\\" + char)
    return text
