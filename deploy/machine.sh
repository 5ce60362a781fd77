# What this machine must have, for the commands beside this file. Sourced by them.
# shellcheck shell=bash

# Debian packages that are missing here, and those that would only make more tests run.
missing_packages=()
# Programs that no package has, and the commands that put them here as root.
missing_programs=()
missing_steps=()

# needs COMMAND PACKAGE...: notes the packages when the command is not there.
needs() {
    command -v "$1" >/dev/null 2>&1 || missing_packages+=("${@:2}")
}

# needs_step COMMAND STEP: notes the step, which the caller takes, when the command is not there.
needs_step() {
    if ! command -v "$1" >/dev/null 2>&1; then
        missing_programs+=("$1")
        missing_steps+=("$2")
    fi
}

# What the build needs beside cargo. The C library of TLS is for the client of Consul.
needs_to_build() {
    needs cc gcc libc6-dev
    needs pkg-config pkg-config
    if ! pkg-config --exists openssl 2>/dev/null; then
        missing_packages+=(libssl-dev)
    fi
}

# Installs the packages that were noted, as root; else says exactly what to run, steps too, and
# exits.
install_missing_packages() {
    local missing=("${missing_packages[@]}" "${missing_programs[@]}")
    ((${#missing[@]} > 0)) || return 0
    local install="apt-get install --yes --no-install-recommends ${missing_packages[*]}"
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "missing on this machine: ${missing[*]} (as Debian calls them);" \
            "there is no apt-get to install them with" >&2
        exit 1
    fi
    if [[ $(id -u) != 0 ]]; then
        echo "missing on this machine: ${missing[*]}; as root, run" >&2
        ((${#missing_packages[@]} == 0)) || echo "  apt-get update && $install" >&2
        ((${#missing_steps[@]} == 0)) || printf '  %s\n' "${missing_steps[@]}" >&2
        exit 1
    fi
    ((${#missing_packages[@]} > 0)) || return 0
    echo "installing ${missing_packages[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update >&2
    $install >&2
    missing_packages=()
}

# Finds the Rust toolchain; says where to get one when there is none.
find_cargo() {
    if ! command -v cargo >/dev/null 2>&1 && [[ -r $HOME/.cargo/env ]]; then
        # shellcheck disable=SC1091
        source "$HOME/.cargo/env"
    fi
    if ! command -v cargo >/dev/null 2>&1; then
        echo "no Rust toolchain (cargo) was found; https://rustup.rs tells how to install one" >&2
        exit 1
    fi
    local needed found
    # Callers stay in the folder in which they were called.
    needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$(dirname "${BASH_SOURCE[0]}")/../Cargo.toml")
    found=$(cargo --version | cut -d ' ' -f 2)
    if [[ $(printf '%s\n' "$needed" "$found" | sort --version-sort | head -n 1) != "$needed" ]]; then
        echo "Rust $needed or newer is needed, and cargo is ${found:-unknown}; 'rustup update' brings it" >&2
        exit 1
    fi
}

# target_folder PROFILE: where cargo puts what it builds in that profile.
target_folder() {
    local folder=${CARGO_TARGET_DIR:-target}
    [[ $folder == /* ]] || folder=$PWD/$folder
    echo "$folder/$1"
}
