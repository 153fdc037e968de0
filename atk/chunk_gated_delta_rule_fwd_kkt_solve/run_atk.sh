#!/usr/bin/env bash
# Runs this package under ATK and judges its reports, because `atk` exits 0 when cases fail.
#   bash run_atk.sh gen_cases|accuracy|performance|determinism|all [DEVICE_ID]
# Environment: STANDARD (auto, or a standard's name), KKT_SOLVE_BASELINE (plugin or mindspeed), PYTHON,
#   ATK_EXTRA (further options for `atk task`, for example "-s 0 -e 5"; the check then misses the cases left out).
set -euo pipefail

OP=chunk_gated_delta_rule_fwd_kkt_solve
SCOPE="${1:-}"
DEVICE_ID="${2:-0}"
PYTHON="${PYTHON:-python3}"
STANDARD="${STANDARD:-auto}"

die() { echo "run_atk: $*" >&2; exit 2; }

case "$SCOPE" in
  gen_cases|accuracy|performance|determinism|all) ;;
  *) die "scope is '$SCOPE'; allowed: gen_cases, accuracy, performance, determinism, all" ;;
esac
[[ "$DEVICE_ID" =~ ^[0-9]+$ ]] || die "device id is '$DEVICE_ID'; it must be a number"

# Some versions refuse paths with `..` or a symbolic link, and search reports relative to the working directory.
cd "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
command -v atk > /dev/null || die "atk is not on PATH; without it, use: python run_local.py accuracy|performance"
echo "run_atk: atk $(atk --version 2>&1 | tail -n 1)"
mkdir -p result atk_output

# nodes FILE: the node file for the chosen device.
nodes() { sed "s/devices: \[0\]/devices: [$DEVICE_ID]/" "$1" > "result/$1"; echo "result/$1"; }

# task NAME CHECK_TASK CASES OPTIONS...: one `atk task`, then the check of the report that it wrote.
task() {
  local name="$1" check="$2" cases="$3"
  shift 3
  local log="result/$name.log" mark="result/$name.started" report
  touch "$mark"
  # shellcheck disable=SC2086  # ATK_EXTRA holds several words on purpose
  atk "$@" -c "$cases" -p "executor_$OP.py" ${ATK_EXTRA:-} 2>&1 | tee "$log"
  report="$(find atk_output -path '*/report/*.xlsx' -newer "$mark" | sort | tail -n 1)"
  [[ -n "$report" ]] || die "$name: atk wrote no report; see $log"
  "$PYTHON" check_report.py "$report" --cases "$cases" --task "$check" --log "$log"
}

# cases FILE: the frozen cases, judged by a standard that the installed ATK knows.
cases() {
  "$PYTHON" kkt_solve_standards.py --cases "$1" --out "result/$1" --standard "$STANDARD"
}

gen_cases() {
  atk case -f "$OP.yaml" -p "gen_$OP.py" -en 0
  atk case -f "${OP}_perf.yaml" -p "gen_$OP.py" -en 0
  echo "run_atk: new cases are result/$OP/json/all_$OP.json and result/${OP}_perf/json/all_${OP}_perf.json"
}

accuracy() {
  local chosen
  chosen="$(cases "atk_$OP.json")"
  echo "run_atk: $chosen"
  case "$chosen" in
    *cv_fused_double_benchmark*)
      task accuracy accuracy "result/atk_$OP.json" task -n "$(nodes nodes_acc.yaml)" --task accuracy -bd cpu -sd -mt 5 ;;
    *)
      task accuracy accuracy "result/atk_$OP.json" task -n "$(nodes nodes_single.yaml)" --task accuracy -bd cpu -sd -mt 5 ;;
  esac
}

performance() {
  cp "atk_${OP}_perf.json" "result/atk_${OP}_perf.json"
  task performance performance "result/atk_${OP}_perf.json" \
    task -n "$(nodes nodes_perf.yaml)" --task performance_device --performance_data 100,20,10 -sp --save_data profile
}

determinism() {
  cases "atk_$OP.json"
  task determinism determinism "result/atk_$OP.json" node --backend npu --devices "$DEVICE_ID" \
    --name dut node --backend cpu --is_compare False task --task accuracy_dc --dc_loop_nums 50 -bd cpu -sd
}

if [[ "$SCOPE" == all ]]; then
  status=0
  for scope in accuracy performance determinism; do
    bash ./run_atk.sh "$scope" "$DEVICE_ID" || status=1  # a process each, so that -e holds inside
  done
  exit "$status"
fi
"$SCOPE"
