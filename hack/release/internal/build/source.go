// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// Source is the commit that is built.
type Source struct {
	Root     string    // The folder of the repository.
	Version  string    // What the user gave, or what git describe says.
	Revision string    // The commit's full hash.
	Time     time.Time // When the commit was made. Files in images and archives have this time.
}

var versionPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$`)

// ReadSource asks git about the commit in a folder. An empty version means that git describe names it.
func ReadSource(ctx context.Context, root, version string) (Source, error) {
	if version != "" && !versionPattern.MatchString(version) {
		return Source{}, fmt.Errorf(
			"VERSION %q: want letters, digits and any of ._+- after the first, at most 128, for example v0.1.0", version)
	}
	// The length of a short hash would depend on how many objects the clone has.
	describe := []string{"describe", "--tags", "--always", "--dirty", "--abbrev=12"}
	answers := make([]string, 3)
	for i, args := range [][]string{{"rev-parse", "HEAD"}, {"log", "-1", "--format=%ct"}, describe} {
		answer, err := git(ctx, root, args...)
		if err != nil {
			return Source{}, err
		}
		answers[i] = answer
	}
	seconds, err := strconv.ParseInt(answers[1], 10, 64)
	if err != nil {
		return Source{}, fmt.Errorf("read the time of commit %s: %w", answers[0], err)
	}
	if version == "" {
		version = answers[2]
	}
	return Source{Root: root, Version: version, Revision: answers[0], Time: time.Unix(seconds, 0).UTC()}, nil
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("run git %s in %s, which must be a clone of the repository: %w", args[0], root, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Dirty says whether files differ from the commit, as far as the version tells.
func (s Source) Dirty() bool { return strings.HasSuffix(s.Version, "-dirty") }

// Tag is the version as a tag of an image, which cannot have a plus.
func (s Source) Tag() string { return strings.ReplaceAll(s.Version, "+", "-") }

// SemVer is the version as charts and krew want it, with a leading v. If the version is no semantic version, such as
// the hash of a commit without earlier tags, it becomes a pre-release of v0.0.0.
func (s Source) SemVer() string {
	version := "v" + strings.TrimPrefix(s.Version, "v")
	if semver.IsValid(version) && semver.Canonical(version)+semver.Build(version) == version {
		return version
	}
	return "v0.0.0-g" + regexp.MustCompile(`[^0-9A-Za-z-]`).ReplaceAllString(s.Version, "-")
}
