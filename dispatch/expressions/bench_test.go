// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile("worker.free['nvidia.com/gpu'] >= 8 && worker.labels.region == 'eu'"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFor measures one answer about one worker.
func BenchmarkFor(b *testing.B) {
	for name, text := range map[string]string{
		"labels":     "worker.labels.region == 'eu'",
		"free":       "worker.free['nvidia.com/gpu'] >= 8 && worker.labels.region == job.labels[?'region'].orValue('eu')",
		"nodeGroups": "worker.nodeGroups.exists(g, g.product == 'H100' && g.free.exists(f, f.gpus >= 8 && f.nodes >= 2))",
	} {
		b.Run(name, func(b *testing.B) {
			e, err := Compile(text)
			check.Must(b, err)
			job, worker := testJob(), testWorker()
			ask := e.For(job)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ask(worker); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
