"""What the documentation tells people to type is typed, and prints what it says; snippets run; links lead somewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.docs.documentation import DOCS, ROOT, Block, Shell, blocks, commands, matches

from raftwerk.cluster.local.layout import ClusterShape, find_free_base_port

PAGES = sorted(path.name for path in DOCS.glob("*.md"))
WITH_COMMANDS = [page for page in PAGES if any(block.language == "console" for block in blocks(page))]
DOCUMENTED_PORT = 9092
SLOW = re.compile(r"Waiting for node \d+(, which [^;]+)?(; node \d+(, which [^;]+)?)*\.")
"""What `up`, `stop` and `down` say every five seconds, and so only where a machine is slow: whole lines only."""


class Reader:
    """Somebody who types what a page says, on ports that are free."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = find_free_base_port(ClusterShape(3))
        bin_dir = directory / "bin"
        bin_dir.mkdir()
        script = bin_dir / "raftwerk"
        script.write_text(f'#!/bin/bash\nexec "{sys.executable}" -m raftwerk "$@"\n')
        script.chmod(0o755)
        path = f"{bin_dir}:{os.environ['PATH']}"
        bootstrap = f"127.0.0.1:{self._port}"
        self.shell = Shell(directory, {"PATH": path, "RAFTWERK_BOOTSTRAP": bootstrap, "COLUMNS": "200"})

    def moved(self, text: str) -> str:
        """`text` with the ports of this cluster."""
        for number in range(3):
            text = re.sub(rf"\b{DOCUMENTED_PORT + number}\b", str(self._port + number), text)
        return text.replace("raftwerk up -n", f"raftwerk up --port {self._port} -n")

    def follow(self, block: Block) -> None:
        for command, expected in commands(block):
            told = [line for line in self.shell.run(self.moved(command)) if not SLOW.fullmatch(line)]
            wanted = [self.moved(line) for line in expected]
            assert matches(wanted, told), f"{block.page}: $ {command}\n" + "\n".join(told)

    def run(self, block: Block) -> str:
        """The output of a snippet."""
        if block.language == "java":
            libs = os.environ.get("KAFKA_LIBS") or os.path.expanduser("~/.cache/kafka-4.2.0")
            file = self._directory / "Greetings.java"
            command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{libs}/*", str(file)]
        else:
            file = self._directory / "snippet.py"
            command = [sys.executable, str(file)]
        file.write_text(self.moved(block.text))
        done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
        assert done.returncode == 0, f"{block.page}:{block.line}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    found = Reader(tmp_path)
    yield found
    found.shell.run("raftwerk down")
    found.shell.close()


def is_missing(block: Block) -> bool:
    """Whether this machine lacks what the block needs; said aloud, since it is then not tested."""
    has_java = shutil.which("java") is not None
    libs = os.environ.get("KAFKA_LIBS") or os.path.expanduser("~/.cache/kafka-4.2.0")
    there = {
        "": True,
        "kcat": shutil.which("kcat") is not None,
        "java": has_java and os.path.isdir(libs),
        "spark": has_java and importlib.util.find_spec("pyspark") is not None,
    }
    return not there[block.needs]


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize("page", [page for page in WITH_COMMANDS if page != "clients.md"])
def test_commands_print_what_the_page_says(page: str, reader: Reader) -> None:
    for block in blocks(page):
        if block.language == "console":
            reader.follow(block)


@pytest.mark.process
def test_every_client_s_snippet_works(reader: Reader) -> None:
    left_out = []
    for block in blocks("clients.md"):
        if is_missing(block):
            left_out.append(block.needs)
        elif block.language == "console":
            reader.follow(block)
        elif block.needs != "spark":
            assert reader.run(block).splitlines()[-1] == "hello"
    if left_out:
        pytest.skip(f"not installed: {', '.join(left_out)}; these snippets are NOT tested")


@pytest.mark.long
@pytest.mark.process
@pytest.mark.java
def test_the_snippet_for_spark_works(reader: Reader) -> None:
    (snippet,) = [block for block in blocks("clients.md") if block.needs == "spark"]
    if is_missing(snippet):
        pytest.skip("no Java or no PySpark: the snippet for Spark is NOT tested")
    reader.shell.run(reader.moved("raftwerk up -n 3 --detach"))
    reader.shell.run("raftwerk topics create greetings -p 3 --replicas 3")
    reader.shell.run("raftwerk produce greetings -m hello")
    assert reader.run(snippet).splitlines()[-1] == "hello"


def test_only_whole_lines_about_slow_nodes_are_left_out() -> None:
    for line in ("Waiting for node 1.", "Waiting for node 1, which opens log 3 of 9; node 2."):
        assert SLOW.fullmatch(line)
    for line in ("Waiting for node 2 failed: it has died", "Node 2 is waiting for node 1.", "waiting for nodes"):
        assert not SLOW.fullmatch(line)


def test_links_lead_to_pages_that_are_there() -> None:
    for page in [*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "ARCHITECTURE.md"]:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)  # no links are in code
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_errors_of_the_rest_proxy_are_in_its_table() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "rest").rglob("*.py"))
    raised = {
        *re.findall(r"RestError\(\s*(\d+)", source),
        *re.findall(r"^[A-Z_]+ = ([45]\d{2,4})$", source, re.MULTILINE),
    }
    rows = re.findall(r"^\| ([\d,; ]+) \|", (DOCS / "rest.md").read_text(), re.MULTILINE)
    told = {code for row in rows for code in re.findall(r"\d+", row)}
    assert len(raised) > 30 and raised - told == set()


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="mkdocs-material is not installed: the site is NOT built")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stderr
    for page in tmp_path.glob("*.html"):
        for link in re.findall(r'(?:href|src)="?([^"> ]+)', page.read_text()):
            target = link.partition("#")[0]
            is_here = target and not re.match(r"[a-z]+:|/", target)
            assert not is_here or (tmp_path / target).is_file(), f"{page.name}: {link} is no file"
    quick_start = (tmp_path / "index.html").read_text()
    assert 'class="gp"' in quick_start and 'class="go"' in quick_start and "assets/site.css" in quick_start


def test_texts_in_pictures_are_not_clipped() -> None:
    """By the width of DejaVu Sans, which is wide among the fonts that a browser takes for sans-serif."""
    for picture in (DOCS / "pictures").glob("*.svg"):
        root = ElementTree.parse(picture).getroot()
        left, top, width, height = map(float, root.attrib["viewBox"].split())
        for text in root.iter("{http://www.w3.org/2000/svg}text"):
            size = float(text.get("font-size") or root.attrib["font-size"])
            wide = len("".join(text.itertext())) * size * 0.58
            shift = {"middle": 0.5, "end": 1.0}.get(text.get("text-anchor", "start"), 0.0)
            begin, baseline = float(text.attrib["x"]) - wide * shift, float(text.attrib["y"])
            is_inside = left <= begin and begin + wide <= left + width and top + size / 2 <= baseline <= top + height
            assert is_inside, f"{picture.name}: {text.text}"


def test_dots_stand_for_anything() -> None:
    assert matches(["a", "...", "z..."], ["a", "b", "c", "z1"])
    assert matches(["..."], [])
    assert not matches(["a"], ["a", "b"])
    assert not matches(["a...c"], ["ab"])
