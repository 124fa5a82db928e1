"""The commands about rosters as they are typed: what they say, and their exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.folder_store import FolderStore
from catalog.roster import read_roster, release_key
from jobs.rebuild_summary import headline, summary_json, summary_markdown
from tests.jobs.conftest import Outcome
from tests.rosters import Lab, failing, lab_of
from tests.s3_server import S3Server

Command = Callable[..., Outcome]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Three voices with two passages each, rendered into `work` and published."""
    made = lab_of(tmp_path, str(tmp_path / "published"))
    assert made.rebuild().exit_code == 0
    return made


def release_of(lab: Lab) -> str:
    release = read_roster(FolderStore(Path(lab.published))).release
    assert release is not None
    return release.id


def test_plan_against_what_is_published_tells_every_clip_and_why(
    lab: Lab, loudkit: Command
) -> None:
    lab.texts["short"] = "Good evening."
    lab.voices["v02"].seed = 1
    del lab.voices["v01"]
    told = loudkit("plan", str(lab.write()), "--published", lab.published)
    assert told.exit_code == 0
    assert told.stdout.splitlines() == [
        "v00/short: stale, text: Good morning. -> Good evening.",
        "v02/short: stale, text: Good morning. -> Good evening.; seed: 102 -> 1",
        "v00/long: current",
        "v02/long: stale, seed: 102 -> 1",
        "v01/long: orphaned",
        "v01/short: orphaned",
        f"{lab.published}: release {release_of(lab)}, 1 current, 3 stale, 2 orphaned; "
        "3 clips to render",
    ]
    as_json = loudkit("plan", str(lab.write()), "--published", lab.published, "--json")
    rows = [json.loads(line) for line in as_json.stdout.splitlines()]
    assert rows[0]["reasons"] == [
        {"fact": "text", "recorded": "Good morning.", "wanted": "Good evening."}
    ]
    assert (rows[-1]["to_render"], rows[-1]["clips"]["orphaned"]) == (3, 2)
    short = loudkit("plan", str(lab.write()), "--published", lab.published, "--summary")
    assert len(short.stdout.splitlines()) == 1


def test_plan_of_nothing_published_renders_everything(tmp_path: Path, loudkit: Command) -> None:
    lab = lab_of(tmp_path, str(tmp_path / "nowhere"))
    told = loudkit("plan", str(lab.write()), "--published", lab.published)
    assert told.exit_code == 0
    assert told.stdout.splitlines()[-1].endswith(
        "nothing is published there yet, 6 missing; 6 clips to render"
    )
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("digest", ["none", "0123", "0123456789ABCDEF", ""])
def test_an_execution_policy_that_is_none_is_refused(
    lab: Lab, loudkit: Command, digest: str
) -> None:
    told = loudkit("plan", str(lab.write()), "--published", lab.published, "--execution", digest)
    assert told.exit_code == 2
    assert "expected any, voice, or the 16 hex digits" in told.stderr


def test_rebuilding_nothing_says_so(lab: Lab, loudkit: Command) -> None:
    command = ("rebuild", str(lab.write()), "--published", lab.published, "--out", "work")
    told = loudkit(*command, "--summary", "s.json", "--markdown", "s.md")
    assert told.exit_code == 0
    assert "nothing stale, all 6 planned clips are current" in told.stdout
    summary = json.loads((lab.folder / "s.json").read_text(encoding="utf-8"))
    assert (summary["nothing_stale"], summary["exit_code"]) == (True, 0)
    assert summary["release"] == release_of(lab)
    assert "nothing stale" in (lab.folder / "s.md").read_text(encoding="utf-8")
    assert loudkit(*command, "--json").last_json["clips"]["current"] == 6


def test_a_rebuild_tells_why_there_is_a_release_and_which_clips_nobody_plans(
    lab: Lab, loudkit: Command
) -> None:
    command = ("rebuild", "catalog.yaml", "--published", lab.published, "--out", "work")
    lab.voices["v00"].description = "Another one."
    lab.write()
    assert "0 recorded anew, 6 current; what is told of the clips" in loudkit(*command).stdout
    del lab.voices["v01"]
    lab.write()
    kept = "; 2 clips that nobody plans are kept, --remove-orphans takes them away"
    assert kept in loudkit(*command).stdout
    assert kept in loudkit(*command, "--markdown", "s.md").stdout
    page = (lab.folder / "s.md").read_text(encoding="utf-8")
    assert "| `v01/long` | orphaned | the catalog no longer asks for it; kept |" in page
    told = loudkit(*command, "--remove-orphans", "--markdown", "s.md")
    assert told.stdout.endswith("0 recorded anew, 4 current, 2 removed\n")
    page = (lab.folder / "s.md").read_text(encoding="utf-8")
    assert "the catalog no longer asks for it; removed" in page


def test_a_title_says_how_a_rebuild_ended(lab: Lab) -> None:
    lab.texts["short"] = "Good evening."
    for partial, title in ((False, "# Not rebuilt: `"), (True, "# Rebuilt in part: `")):
        result = lab.rebuild(fleet=failing("v01/short"), partial=partial)
        assert summary_markdown(summary_json(lab.options(), result)).startswith(title)


def test_a_rebuild_that_is_refused_leaves_no_summary_of_the_last_one(
    lab: Lab, loudkit: Command
) -> None:
    catalog = lab.write()
    command = ("rebuild", str(catalog), "--published", lab.published, "--out", "work")
    files = ("--summary", "s.json", "--markdown", "s.md")
    assert loudkit(*command, *files).exit_code == 0
    catalog.write_text("catlog: x\n", encoding="utf-8")
    assert loudkit(*command, *files).exit_code == 2
    assert not [name for name in ("s.json", "s.md") if (lab.folder / name).exists()]
    catalog = lab.write()
    assert "is a directory" in loudkit(*command, "--summary", "work").stderr
    assert (lab.folder / "work").is_dir()


def test_verify_says_what_mends_audio(lab: Lab, loudkit: Command) -> None:
    altered = sorted((Path(lab.published) / "objects").iterdir())[0]
    altered.write_bytes(b"x" * altered.stat().st_size)
    told = loudkit("verify", lab.published)
    assert told.exit_code == 3
    assert "6 clips, 1 finding\n" in told.stdout
    assert "made again by rebuild --rehash" in told.stderr


def test_a_rebuild_works_in_a_folder(lab: Lab, loudkit: Command) -> None:
    command = ("rebuild", str(lab.write()), "--published", lab.published, "--out", "s3://b/p")
    told = loudkit(*command)
    assert (told.exit_code, "works in a folder" in told.stderr) == (2, True)


def test_a_summary_for_people_is_no_markup_of_a_text(lab: Lab) -> None:
    lab.texts["short"] = "<script>|`*[x](javascript:1)*`|\n# Good evening."
    options, result = lab.options(), lab.rebuild(fleet=failing("v01/short"), partial=True)
    told = summary_json(options, result)
    page = summary_markdown(told)
    assert "<script>" not in page.replace("\\<script\\>", "")
    rows = [line for line in page.splitlines() if line.startswith("| `v0")]
    assert rows
    assert all(line.count("|") - line.count("\\|") in (3, 4) for line in rows)
    assert "1 failed and not renewed" in headline(told)


def test_publish_and_back_and_away(lab: Lab, loudkit: Command) -> None:
    uri = str(lab.folder / "other")
    first = loudkit("publish", "work", uri, "--json").last_json
    assert (first["is_new_release"], first["clips"], len(first["recorded_anew"])) == (True, 6, 6)
    swapped = loudkit("publish", uri, "work")
    assert (swapped.exit_code, "is a published roster; give" in swapped.stderr) == (2, True)
    again = loudkit("publish", "work", uri)
    assert (again.exit_code, "nothing to publish" in again.stdout) == (0, True)
    lab.texts["short"] = "Good evening."
    lab.rebuild()
    second = loudkit("publish", "work", uri, "--json").last_json
    assert len(second["recorded_anew"]) == 3
    back = loudkit("publish", uri, "--rollback", first["release"])
    assert (back.exit_code, first["release"] in back.stdout) == (0, True)
    assert "until the next rebuild" in back.stdout
    dry = loudkit("publish", uri, "--gc", "--older-than", "7", "--json").last_json
    assert (dry["removed"], dry["releases"], dry["objects"]) == (False, [], [])
    assert (
        "0 releases and 0 objects"
        in loudkit("publish", uri, "--gc", "--older-than", "7", "--yes").stdout
    )
    gone = loudkit("publish", uri, "--rollback", "000009-0123456789ab")
    assert gone.exit_code == 2
    assert second["release"] in gone.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a"], "expected publish DIR URI, got 1"),
        (["a", "b", "c"], "expected publish DIR URI, got 3"),
        (["a", "b", "--rollback", "x"], "expected publish URI --rollback, got 2"),
        (["a", "--rollback", "x", "--gc"], "two different things"),
        (["a", "--gc"], "--gc and --older-than DAYS go together"),
        (["a", "b", "--older-than", "3"], "--gc and --older-than DAYS go together"),
        (["a", "b", "--yes"], "--yes belongs to --gc"),
        (["a", "--gc", "--older-than", "0"], "Invalid value for '--older-than'"),
        (["a", "--gc", "--older-than", "nan"], "Invalid value for '--older-than'"),
        (["a", "--gc", "--older-than", "inf"], "Invalid value for '--older-than'"),
        (["a", "--gc", "--older-than", "1e300"], "Invalid value for '--older-than'"),
        (["a", "--rollback", "../x"], "is no release"),
        (["nothing", "b"], "give a folder that render left"),
        (["s3://bucket/roster", "work"], "give the folder that render left first, then the URI"),
    ],
)
def test_misuse_of_publish_is_one_line(loudkit: Command, arguments: list[str], told: str) -> None:
    result = loudkit("publish", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_records_that_cannot_be_read_are_one_line(tmp_path: Path, loudkit: Command) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/catalog.json").write_text("[{]", encoding="utf-8")
    for command in (("verify", "bad"), ("publish", "bad", "there")):
        told = loudkit(*command)
        assert told.exit_code == 2
        assert "catalog.json:1:3: not JSON" in told.stderr
        assert len(told.stderr.splitlines()) == 1


def test_a_rebuild_into_a_bucket(tmp_path: Path, weed_s3: S3Server, loudkit: Command) -> None:
    uri = f"s3://{weed_s3.new_bucket()}/roster"
    endpoint = ("--endpoint-url", weed_s3.endpoint_url)
    with weed_s3.credentials():
        lab = lab_of(tmp_path, uri, endpoint_url=weed_s3.endpoint_url)
        lab.rebuild(copies=True)
        lab.texts["short"] = "Good evening."
        assert lab.rebuild(copies=True).exit_code == 0
        rebuild = ("rebuild", str(lab.write()), "--published", uri, "--out", "work", *endpoint)
        assert "nothing stale" in loudkit(*rebuild).stdout
        assert loudkit("verify", uri, *endpoint).exit_code == 0
        release = read_roster(weed_s3.open(uri)).release
        assert release is not None
        key = "roster/" + release_key(release.id, "audio/v00/short.flac")
        bucket = uri.split("/")[2]
        copy = weed_s3.client().head_object(Bucket=bucket, Key=key)
        assert copy["ContentType"] == "audio/flac"
        page = "roster/" + release_key(release.id, "index.html")
        told = weed_s3.client().head_object(Bucket=bucket, Key=page)
        assert told["ContentType"] == "text/html; charset=utf-8"


def test_a_server_without_conditions_is_refused_until_told(
    tmp_path: Path, moto_s3: S3Server
) -> None:
    from catalog.store_errors import StoreUnconditionalError
    from tests.s3_server import WITHOUT_CONDITIONS

    with moto_s3.credentials():
        uri = f"s3://{WITHOUT_CONDITIONS}/{tmp_path.name}"
        lab = lab_of(tmp_path, uri, endpoint_url=moto_s3.endpoint_url)
        with pytest.raises(StoreUnconditionalError):
            lab.rebuild()
        assert lab.rebuild(unconditional_writes=True).exit_code == 0
        assert lab.rebuild().published is None


def test_what_a_record_says_cannot_write_on_the_terminal(lab: Lab, loudkit: Command) -> None:
    """Nor be another line, column or link of the page for people."""
    nasty = "audio/\u202e\x1b[31m\nv00/short: current|<b>.flac"
    for name in ("catalog.json", "provenance.json"):
        path = lab.folder / "work" / name
        text = path.read_text(encoding="utf-8")
        told = text.replace('"audio/v00/short.flac"', json.dumps(nasty))
        path.write_text(told, encoding="utf-8")
    found = loudkit("verify", "work")
    assert found.exit_code == 3
    assert all(char not in found.stdout for char in "\u202e\x1b")
    assert "v00/short: current|" not in [line[:19] for line in found.stdout.splitlines()]
    listed = loudkit("plan", str(lab.write()), "--published", "work")
    assert all(char not in listed.stdout for char in "\u202e\x1b")
    options = lab.options()
    result = replace(lab, published=str(lab.folder / "work")).rebuild()
    page = summary_markdown(summary_json(options, result))
    rows = [line for line in page.splitlines() if line.startswith("| `v00/short`")]
    assert len(rows) == 1
    assert rows[0].count("|") - rows[0].count("\\|") == 4
    assert all(char not in page for char in "\u202e\x1b")


def test_credentials_in_an_address_are_not_shown(lab: Lab, loudkit: Command) -> None:
    catalog = str(lab.write())
    place = "s3://AKIAKEY:hunter2@bucket/roster"
    for command in (
        ("rebuild", catalog, "--published", lab.published, "--out", place),
        ("rebuild", catalog, "--published", place, "--out", "work"),
        ("verify", place),
        ("publish", "work", place),
        ("plan", catalog, "--published", place),
    ):
        told = loudkit(*command)
        assert told.exit_code == 2, command
        assert len(told.stderr.strip().splitlines()) == 1, told.stderr
        assert "hunter2" not in told.stdout + told.stderr
        assert "AKIAKEY" not in told.stdout + told.stderr
