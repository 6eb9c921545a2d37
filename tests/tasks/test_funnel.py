"""The funnel of reports: sites, statuses and examples add up to the same however records are spread over shards."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from flows.inspect_command import describe_path, inspect
from tasks.adopt import adopt_urls
from tasks.progress import StageReport, add_reports, keep_sample, largest
from tasks.reservoir import Reservoir
from tasks.scrape.config import FilterConfig
from tasks.scrape.filter_sites import SiteCounts
from tasks.scrape.filter_stage import FILTER
from tasks.scrape.public_suffix import site_of_url
from tasks.store import ArtifactStore

RECORDS = st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from(["ok", "timeout"])), max_size=60)


def report_of(records: list[tuple[str, str]]) -> StageReport:
    report = StageReport(unit="urls", num_in=len(records))
    for site, reason in records:
        report.place(site, reason)
        if reason == "ok":
            report.num_out += 1
        else:
            report.drop(reason, f"http://{site}/")
        report.statuses["200"] = report.statuses.get("200", 0) + 1
    return report


@given(RECORDS, st.integers(1, 60))
def test_shards_do_not_matter(records: list[tuple[str, str]], size: int) -> None:
    shards = [report_of(records[start : start + size]) for start in range(0, len(records), size)]
    total = add_reports(shards, "urls")
    whole = add_reports([report_of(records)], "urls")
    assert total == whole
    assert Counter({site: sum(counts.values()) for site, counts in total.domains.items()}) == Counter(
        site for site, _ in records
    )


def test_sample_is_bounded_and_of_all_records() -> None:
    kept: list[str] = []
    for number in range(1000):
        keep_sample(kept, f"record {number}", 5)
    places = [int(example.split()[1]) for example in kept]
    assert len(kept) == 5 and places == sorted(places) and places[-1] > 500
    keep_sample(kept, kept[0], 5)
    assert len(set(kept)) == 5


def test_largest_sites_first() -> None:
    domains = {"b": {"x": 2}, "a": {"x": 1, "ok": 1}, "c": {"x": 3}}
    assert list(largest(domains, 2)) == ["c", "a"]
    report = StageReport(unit="urls")
    for number in range(5000):
        report.place("big", "ok")
        report.place(f"small{number}", "ok")
    assert len(report.domains) <= 2000 and report.domains["big"] == {"ok": 5000}
    sites = SiteCounts(max_sites=4)
    for name in "abcdefgh":
        sites.add("big", "ok", 2)
        sites.add(name, "ok", 1)
    assert sites.top(1) == {"big": {"ok": 16}}


@given(st.lists(st.integers(0, 50), max_size=30))
def test_reservoir_is_the_same_in_any_portions(portions: list[int]) -> None:
    at_once, in_parts = Reservoir[int](5, "seed"), Reservoir[int](5, "seed")
    at_once.offer(sum(portions), lambda place: place)
    first = 0
    for portion in portions:
        in_parts.offer(portion, lambda place, first=first: first + place)  # type: ignore[misc]
        first += portion
    assert in_parts.items == at_once.items
    assert len(at_once.items) == min(5, sum(portions)) == len(set(at_once.items))


def test_reservoir_gives_every_item_its_chance() -> None:
    hits: Counter[int] = Counter()
    for seed in range(4000):
        sample = Reservoir[int](2, str(seed))
        sample.offer(10, lambda place: place)
        hits.update(sample.items)
    # 800 expected for each, standard deviation 25
    assert all(abs(hits[place] - 800) < 130 for place in range(10)), hits


def test_site_of_url() -> None:
    urls = {
        "http://www.example.co.uk/a": "example.co.uk", "HTTPS://u:p@Example.COM.:80?x": "example.com",
        "http://8.8.8.8/": "8.8.8.8", "http://[::1]:8/": "[::1]", "nothing": "",
    }  # fmt: skip
    assert {url: site_of_url(url) for url in urls} == urls


def test_inspect_shows_the_way_from_the_list(tmp_path: Path, capsys: object) -> None:
    lines = [f"http://imgur.com/{number}" for number in range(40)] + ["http://example.com/", "http://u:secret@a.com/"]
    (tmp_path / "list.txt").write_text("\n".join(lines))
    store = ArtifactStore(tmp_path / "store")
    made = store.run(FILTER, FilterConfig(), [adopt_urls(store, [tmp_path / "list.txt"])])
    facts = describe_path(store.path_of(made))
    assert [(row["stage"], row["in"], row["out"]) for row in facts["funnel"]] == [
        ("adopt-urls", 42, 42),
        ("filter", 42, 1),
    ]
    assert facts["funnel"][1]["domains"]["imgur.com"] == {"blocked_domain": 40}
    assert len(facts["examples"]["blocked_domain"]) == 5
    assert "secret" not in json.dumps(facts)
    again = store.run(FILTER, FilterConfig(), [adopt_urls(store, [tmp_path / "list.txt"])], refresh=True)
    assert describe_path(store.path_of(again))["examples"] == facts["examples"]
    inspect(store.path_of(made), as_json=False)
