// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build pictures

package board

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// TestPictures makes the pictures of README and docs from a running demo ("make demo"). It adds jobs to the demo, some of
// which find no room.
func TestPictures(t *testing.T) {
	plugin, err := clusters.Build(t.Context(), "kubectl-trainyard")
	check.Must(t, err)
	kubeconfig := filepath.Join("..", "..", ".demo", "hub", "kubeconfig")
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	check.Must(t, err)
	scheme := runtime.NewScheme()
	check.Must(t, trainer.AddToScheme(scheme))
	check.Must(t, v1alpha1.AddToScheme(scheme))
	hub, err := client.New(config, client.Options{Scheme: scheme})
	check.Must(t, err)
	runs := yard.Job{Namespace: "default", Name: "llama-70b", Nodes: 1, GPUs: 8, RunFor: clusters.RunForever}
	for _, job := range []yard.Job{
		{Namespace: "default", Name: "vision-sweep", Nodes: 3, GPUs: 4, RunFor: clusters.RunForever},
		runs,
		{Namespace: "default", Name: "gpt-pretrain", Nodes: 6, GPUs: 8, RunFor: "1s"},
		{Namespace: "default", Name: "diffusion-xl", Nodes: 2, GPUs: 8, RunFor: "1s"},
	} {
		object := job.TrainJob()
		check.Must(t, hub.Create(t.Context(), object))
		t.Cleanup(func() { check.Must(t, hub.Delete(context.Background(), object)) })
	}
	b := openWith(t, plugin, kubeconfig, "default")
	b.look(t, 1180, "light")
	b.run(t, chromedp.EmulateViewport(1180, 640))
	b.visit(t, "queue", "diffusion-xl")
	b.await(t, "gpt-pretrain")
	b.picture(t, "queue")
	b.visit(t, "fleet", "h100")
	b.picture(t, "fleet")
	b.visit(t, "job?namespace=default&name=llama-pretrain", "Complete")
	b.tab(t, "Timeline")
	b.picture(t, "timeline")
	b.visit(t, "job?namespace=default&name="+runs.Name, "Running")
	drawArchitecture(t, hub, runs)
	b.faultless(t)
}

func (b *tab) picture(t *testing.T, name string) {
	t.Helper()
	picture, err := chromedp.Run(b, chromedp.CaptureScreenshot())
	check.Must(t, err)
	check.Must(t, os.WriteFile(filepath.Join("..", "..", "docs", "pictures", name+".png"), picture, 0o644))
}
