#!/usr/bin/env bash
# Runs the check, keeps its reports and exit code, shows the page as the step's summary. The verdict comes last, in a
# step of its own, so that the comment is written either way.
set -euo pipefail

report=$(mktemp -d "$RUNNER_TEMP/shardplan-report.XXXXXX")
words=(check "$NEW" --base "$BASE" --fail-on "$FAIL_ON" --detailed-exitcode)
if [ -n "${WAIVERS:-}" ]; then words+=(--waivers "$WAIVERS"); fi
if [ -n "${SERVER:-}" ]; then words+=(--server "$SERVER"); fi
read -r -a more <<<"${ARGUMENTS:-}"

code=0
shardplan "${words[@]}" --markdown "$report/report.md" --junit "$report/report.xml" --sarif "$report/report.sarif" \
  --json ${more[@]+"${more[@]}"} >"$report/report.json" 2>"$report/error.txt" || code=$?
cat "$report/error.txt" >&2

if [ -s "$report/report.md" ]; then cat "$report/report.md" >>"$GITHUB_STEP_SUMMARY"; fi
{
  echo "exit-code=$code"
  echo "report=$report"
} >>"$GITHUB_OUTPUT"
