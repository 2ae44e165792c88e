"""Reads a page of metrics from stdin with the parser of Prometheus' own client, and says what is in it as JSON.

Usage: read_metrics.py text|openmetrics. Ends with a traceback for a page that a scraper would not take.
"""

import json
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

read = {"text": read_text, "openmetrics": read_openmetrics}[sys.argv[1]]
families = {}
for family in read(sys.stdin.read()):
    if family.name in families:
        raise ValueError(f"{family.name} stands there twice")
    families[family.name] = {
        "type": family.type,
        "help": family.documentation,
        "samples": len(family.samples),
        "labels": sorted({label for sample in family.samples for label in sample.labels}),
        "exemplars": [sample.exemplar.labels["trace_id"] for sample in family.samples if sample.exemplar],
    }
json.dump(families, sys.stdout)
