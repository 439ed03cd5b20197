// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package printing_test

import (
	"io"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/printing"
)

func TestEscaped(t *testing.T) {
	cases := map[string]struct {
		reason     string
		text, want string
	}{
		"Plain":    {"Letters of all languages, line breaks and tabs pass.", "ok\tWörter 你好\n", "ok\tWörter 你好\n"},
		"Escape":   {"It begins a command to the terminal.", "\x1b[2J", `\u001b[2J`},
		"Return":   {"It overwrites the line.", "FAIL\rok  ", `FAIL\u000dok  `},
		"Back":     {"It overwrites letters.", "no\b\byes\a", `no\u0008\u0008yes\u0007`},
		"Single":   {"It begins a command in one letter.", "\u009b2J", `\u009b2J`},
		"Invalid":  {"An old terminal takes the byte for a command.", "\x9b2J", `\x9b2J`},
		"Reversed": {"It changes the order of what follows.", "a\u202eb", `a\u202eb`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			whole, parts := &strings.Builder{}, &strings.Builder{}
			if n, err := io.WriteString(printing.Escaped(whole), tc.text); err != nil || n != len(tc.text) {
				t.Fatalf("wrote %d of %d bytes: %v", n, len(tc.text), err)
			}
			to := printing.Escaped(parts)
			for i := range len(tc.text) {
				if _, err := to.Write([]byte{tc.text[i]}); err != nil {
					t.Fatal(err)
				}
			}
			if whole.String() != tc.want || parts.String() != tc.want {
				t.Errorf("%s\nwrote %q, and %q byte by byte, want %q", tc.reason, whole, parts, tc.want)
			}
		})
	}
}
