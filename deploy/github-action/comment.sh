#!/usr/bin/env bash
# One comment for a file: the one that begins with the report's mark is replaced, else a new one is written.
set -euo pipefail

[ -s "$REPORT/report.md" ] || exit 0
mark=$(head -n 1 "$REPORT/report.md")
comments="repos/$REPOSITORY/issues/$NUMBER/comments"

found=$(MARK="$mark" gh api --paginate "$comments" --jq '.[] | select(.body | startswith(env.MARK)) | .id' | sed -n 1p)
if [ -n "$found" ]; then
  gh api --method PATCH "repos/$REPOSITORY/issues/comments/$found" --field "body=@$REPORT/report.md" --silent
else
  gh api --method POST "$comments" --field "body=@$REPORT/report.md" --silent
fi
