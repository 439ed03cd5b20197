// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build pictures

package board

import (
	"bytes"
	_ "embed"
	"html/template"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
	"github.com/trainyard/trainyard/views/fleet"
)

//go:embed architecture.svg.tmpl
var architecture string

// workerBox is a worker in the picture. Lengths are in the units of the picture.
type workerBox struct {
	Name, Product string
	Free, Total   int64
	Chosen        bool
	Y, Height     int
	Cells         []nodeBox
}

// nodeBox is a node: the lower Used of its 20 are what jobs have taken of its GPUs, and Gap is above them.
type nodeBox struct{ X, Y, Used, Gap int }

// drawArchitecture draws the way of a job that runs in the demo: docs/pictures/architecture.svg.
func drawArchitecture(t *testing.T, hub client.Client, job yard.Job) {
	t.Helper()
	var record v1alpha1.Dispatch
	check.Must(t, hub.Get(t.Context(), client.ObjectKey{Namespace: job.Namespace, Name: job.Name}, &record))
	var clusters v1alpha1.WorkerClusterList
	check.Must(t, hub.List(t.Context(), &clusters))
	picture := struct {
		Job, Chosen         string
		Attempt             int32
		Nodes, GPUs, Height int
		Workers             []workerBox
	}{Job: job.Name, Chosen: string(record.Spec.Cluster), Attempt: record.Spec.Attempt, Nodes: int(job.Nodes), GPUs: int(job.GPUs)}
	y, known := 24, accelerators.Seen(clusters.Items)
	for i := range clusters.Items {
		card := fleet.CardOf(&clusters.Items[i], known)
		box := workerBox{Name: card.Name, Chosen: card.Name == picture.Chosen, Y: y, Height: 98}
		for _, pool := range card.Pools {
			box.Product, box.Free, box.Total = strings.Split(pool.Name, " ")[0], box.Free+pool.Free, box.Total+pool.Total
		}
		for _, cell := range card.Nodes {
			for range cell.Nodes {
				used := int(20 * (cell.Total - cell.Free) / max(cell.Total, 1))
				box.Cells = append(box.Cells, nodeBox{X: 668 + 25*len(box.Cells), Y: y + 62, Used: used, Gap: 20 - used})
			}
		}
		if box.Chosen {
			box.Height = 200
		}
		picture.Workers = append(picture.Workers, box)
		y += box.Height + 16
	}
	picture.Height = max(y+8, 420)
	drawing, err := template.New("architecture").Funcs(template.FuncMap{"add": func(a, b int) int { return a + b }}).Parse(architecture)
	check.Must(t, err)
	var out bytes.Buffer
	check.Must(t, drawing.Execute(&out, picture))
	check.Must(t, os.WriteFile(filepath.Join("..", "..", "docs", "pictures", "architecture.svg"), out.Bytes(), 0o644))
}
