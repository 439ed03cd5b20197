# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# The Go modules of this repository, for the scripts that do something in each of them. A script sources this file in the
# root of the repository. No list is written by hand: a new module is checked as soon as it has a go.mod file.

# Prints the directories of all Go modules.
all_modules() { git ls-files --cached --others --exclude-standard -- go.mod '**/go.mod' | xargs -n 1 dirname; }

# Prints the directories of the modules that have Go code. The other modules only pin tools.
code_modules() {
  local module
  for module in $(all_modules); do
    if [[ -n $(git ls-files --cached --others --exclude-standard -- "$module/*.go") ]]; then
      echo "$module"
    fi
  done
}
