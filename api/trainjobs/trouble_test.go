// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func TestTrouble(t *testing.T) {
	long := trainjobs.Trouble{Reason: "CrashLoop", Message: strings.Repeat("ä", 2000)}.String()
	cases := map[string]struct {
		reason string
		value  string
		want   *trainjobs.Trouble
	}{
		"None":    {reason: "a copy without trouble has no annotation"},
		"Pull":    {"what the agent writes", "ImagePullFailed: pod a: b: c", &trainjobs.Trouble{Reason: "ImagePullFailed", Message: "pod a: b: c"}},
		"Long":    {"a long message is cut", long, &trainjobs.Trouble{Reason: "CrashLoop", Message: strings.TrimPrefix(long, "CrashLoop: ")}},
		"Words":   {"a sentence is no reason", "it does not run: really", nil},
		"Empty":   {"a reason alone says nothing", "CrashLoop: ", nil},
		"Endless": {"the agent never writes so much", "CrashLoop: " + strings.Repeat("a", 5000), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			copy := &metav1.ObjectMeta{}
			if tc.value != "" {
				copy.Annotations = map[string]string{v1alpha1.AnnotationStalled: tc.value}
			}
			check.Diff(t, tc.want, trainjobs.TroubleOf(copy), tc.reason)
		})
	}
	if len(long) > 1024 || !utf8.ValidString(long) || !strings.HasSuffix(long, " ...") {
		t.Errorf("a long trouble has %d bytes and ends with %q", len(long), long[len(long)-8:])
	}
}
