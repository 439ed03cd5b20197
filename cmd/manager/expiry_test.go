// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

func TestValidateArchive(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	check.Must(t, os.WriteFile(token, []byte("secret"), 0o600))
	for name, test := range map[string]struct {
		archive archiveOptions
		// fault names flag and value. Empty: there is none.
		fault string
	}{
		"None":      {},
		"Dir":       {archive: archiveOptions{dir: dir}},
		"URL":       {archive: archiveOptions{url: "https://archive.example.com/jobs", tokenFile: token}},
		"Both":      {archive: archiveOptions{dir: dir, url: "https://archive"}, fault: "set one of them"},
		"NoDir":     {archive: archiveOptions{dir: dir + "/none"}, fault: `--archive-dir is "` + dir + `/none": must be an existing directory`},
		"File":      {archive: archiveOptions{dir: token}, fault: `must be an existing directory`},
		"HTTP":      {archive: archiveOptions{url: "http://archive"}, fault: `--archive-url is "http://archive": must be a URL that begins with https://`},
		"Password":  {archive: archiveOptions{url: "https://me:hidden@archive"}, fault: `no user or password`},
		"NoToken":   {archive: archiveOptions{url: "https://archive", tokenFile: dir + "/none"}, fault: "read the token"},
		"OnlyToken": {archive: archiveOptions{tokenFile: token}, fault: "--archive-token-file needs --archive-url"},
	} {
		t.Run(name, func(t *testing.T) {
			o := defaultOptions()
			o.archive = test.archive
			err := o.validate()
			if (err != nil) != (test.fault != "") || err != nil && !strings.Contains(err.Error(), test.fault) {
				t.Errorf("validate() = %v, want %q", err, test.fault)
			}
			if err != nil && strings.Contains(err.Error(), "hidden") {
				t.Errorf("validate() shows the password: %v", err)
			}
		})
	}
}
