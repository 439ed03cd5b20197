// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

// TestTail: whatever the pieces in which a log comes, its end is kept, from the start of a line on if something is cut.
func TestTail(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		limit, total := 1+random.IntN(50), random.IntN(200)
		text := make([]byte, total)
		for i := range text {
			text[i] = "ab\n"[random.IntN(3)]
		}
		end := &tail{limit: limit}
		for rest := text; len(rest) > 0; {
			n := 1 + random.IntN(len(rest))
			written, err := end.Write(rest[:n])
			check.Must(t, err)
			check.Equal(t, n, written, "written")
			rest = rest[n:]
		}
		want := text
		if total > limit {
			want = text[total-limit:]
			if at := bytes.IndexByte(want, '\n'); at >= 0 && at+1 < len(want) {
				want = want[at+1:]
			}
		}
		check.Equal(t, string(want), string(end.end()), "end of %q with limit %d", text, limit)
		check.Equal(t, total > limit, end.dropped(), "dropped of %q with limit %d", text, limit)
		check.Equal(t, bytes.Count(text, []byte("\n")), end.lines, "lines")
	}
}
