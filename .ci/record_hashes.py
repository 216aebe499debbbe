"""Print a report of `pip install --report` on the standard input as requirements with hashes; see SECURITY.md."""

import json
import sys

for package in json.load(sys.stdin)["install"]:
    archive = package["download_info"].get("archive_info")  # Legenda itself is a folder
    if archive:
        name, version = (package["metadata"][key] for key in ("name", "version"))
        print(f"{name}=={version} --hash=sha256:{archive['hashes']['sha256']}")
