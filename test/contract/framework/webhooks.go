// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/clusters"
)

// configurations are the kinds by which an API server knows webhooks. It calls mutating webhooks first: while one of
// them does not answer, nothing shows that it knows the others.
var configurations = []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}

// installWebhooks applies config/webhook and returns when the API server calls these webhooks. Nobody listens yet, so
// the API server refuses a request and names the webhook.
func installWebhooks(ctx context.Context, cluster *clusters.Cluster, server *clusters.WebhookServer, admin client.Client) error {
	root, err := clusters.ModuleDir(ctx, "github.com/trainyard/trainyard")
	if err != nil {
		return err
	}
	objects, err := clusters.ReadObjects(filepath.Join(root, "config/webhook"))
	if err != nil {
		return err
	}
	if err := clusters.WebhookURLs(server, objects...); err != nil {
		return err
	}
	for _, kind := range configurations {
		var called []string
		for _, object := range objects {
			if object.GetKind() != kind {
				continue
			}
			if err := cluster.ApplyObjects(ctx, object); err != nil {
				return err
			}
			called = append(called, webhookNames(object)...)
		}
		if err := awaitCall(ctx, admin, called); err != nil {
			return fmt.Errorf("wait for a webhook of a %s to be called: %w", kind, err)
		}
	}
	return nil
}

func webhookNames(configuration *unstructured.Unstructured) []string {
	webhooks, _, _ := unstructured.NestedSlice(configuration.Object, "webhooks")
	var names []string
	for _, webhook := range webhooks {
		names = append(names, webhook.(map[string]any)["name"].(string))
	}
	return names
}

// awaitCall creates a TrainJob, without effect, until one of the webhooks is called for it.
func awaitCall(ctx context.Context, admin client.Client, names []string) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, waitLimit, true, func(ctx context.Context) (bool, error) {
		last = admin.Create(ctx, &trainer.TrainJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "probe"},
			Spec: trainer.TrainJobSpec{
				RuntimeRef:     trainer.RuntimeRef{Name: "none"},
				RuntimePatches: []trainer.RuntimePatch{{Manager: "trainyard.dev/probe"}},
			},
		}, client.DryRunAll)
		for _, name := range names {
			if last != nil && strings.Contains(last.Error(), fmt.Sprintf("failed calling webhook %q", name)) {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("%w: of %s, last: %w", err, strings.Join(names, ", "), last)
	}
	return nil
}
