// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard/test/check"
)

const stamped = "2026-01-01T00:00:00Z one\n" +
	"2026-01-01T00:00:01.5Z two\n" +
	"2026-01-01T00:00:01.5Z three of the same time\n" +
	"2026-01-01T00:00:01.5Z three of the same time\n" +
	"2026-01-01T00:00:02Z \n" +
	"2026-01-01T00:00:02.000000001Z four has spaces\n"

const unstamped = "one\ntwo\nthree of the same time\nthree of the same time\n\nfour has spaces\n"

// TestStamperGoesOnWhereItWasCutOff cuts the log off at each of its bytes and reads it again from the start.
func TestStamperGoesOnWhereItWasCutOff(t *testing.T) {
	for cut := range len(stamped) + 1 {
		for _, keep := range []bool{false, true} {
			var got strings.Builder
			s := &stamper{to: &got, keep: keep}
			for _, part := range []string{stamped[:cut/2], stamped[cut/2 : cut]} {
				if n, err := s.Write([]byte(part)); err != nil || n != len(part) {
					t.Fatalf("wrote %d of %d: %v", n, len(part), err)
				}
			}
			s.again()
			if _, err := s.Write([]byte(stamped)); err != nil {
				t.Fatal(err)
			}
			want := unstamped
			if keep {
				want = stamped
			}
			if diff := cmp.Diff(want, got.String()); diff != "" {
				t.Fatalf("cut off after %d bytes, times kept %v (-want +got):\n%s", cut, keep, diff)
			}
		}
	}
}

func TestStamper(t *testing.T) {
	tests := map[string]struct {
		reason string
		first  string
		again  string
		want   string
	}{
		"FromATime": {
			reason: "what is read again begins at the second of the last line",
			first:  "2026-01-01T00:00:00Z zero\n2026-01-01T00:00:01.1Z one\n2026-01-01T00:00:01.2Z two\n",
			again:  "2026-01-01T00:00:01.1Z one\n2026-01-01T00:00:01.2Z two\n2026-01-01T00:00:01.3Z three\n",
			want:   "zero\none\ntwo\nthree\n",
		},
		"ClockGoesBack": {
			reason: "in a log that was not cut off no line is left out",
			first:  "2026-01-01T00:00:05Z one\n2026-01-01T00:00:01Z two\n", want: "one\ntwo\n",
		},
		"NoTime": {
			reason: "the kubelet's own words have no time",
			first:  "2026-01-01T00:00:05Z one\nunable to retrieve container logs\n", want: "one\nunable to retrieve container logs\n",
		},
		"NoTimeAtAll":  {reason: "a long word", first: strings.Repeat("x", 200) + " y\n", want: strings.Repeat("x", 200) + " y\n"},
		"NoSpaceAtAll": {reason: "a longer one", first: strings.Repeat("x", 200), want: strings.Repeat("x", 200)},
		"OpenLine": {
			reason: "a line that goes on after it was cut off",
			first:  "2026-01-01T00:00:00Z 10%", again: "2026-01-01T00:00:00Z 10% 20%\n2026-01-01T00:00:01Z end\n", want: "10% 20%\nend\n",
		},
		"NextRun": {
			reason: "the log of the next run of the container is later",
			first:  "2026-01-01T00:00:00Z same\n", again: "2026-01-01T00:00:09Z same\n", want: "same\nsame\n",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			s := &stamper{to: &got}
			_, _ = s.Write([]byte(tc.first))
			if tc.again != "" {
				s.again()
				_, _ = s.Write([]byte(tc.again))
			}
			check.Diff(t, tc.want, got.String(), tc.reason)
		})
	}
}

func TestStamperReached(t *testing.T) {
	s := &stamper{to: &strings.Builder{}}
	_, _ = s.Write([]byte(stamped))
	if want := time.Date(2026, 1, 1, 0, 0, 2, 1, time.UTC); !s.reached().Equal(want) {
		t.Errorf("want %s, got %s", want, s.reached())
	}
}
