// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/config"
	"github.com/trainyard/trainyard/internal/cluster"
	"github.com/trainyard/trainyard/kubeconfigs"
)

// defaultAgentImage is the image in the manifests.
const defaultAgentImage = "trainyard/worker-agent:latest"

// copiedCRDs are the CRDs of Kubeflow Trainer that a worker needs.
var copiedCRDs = []string{
	"trainjobs.trainer.kubeflow.org", "trainingruntimes.trainer.kubeflow.org", "clustertrainingruntimes.trainer.kubeflow.org",
}

// workerObjects are the objects of the worker, in the order in which they are written: what a token of the hub may do
// comes before the Secret to which tokens are bound.
func (f *observation) workerObjects() ([]*unstructured.Unstructured, error) {
	objects, err := manifests(config.Worker)
	if err != nil {
		return nil, err
	}
	var granted []string
	if f.options.Logs {
		granted = append(granted, config.WorkerLogs)
	}
	if f.options.Lookup {
		granted = append(granted, config.WorkerLookup)
	}
	for _, folder := range granted {
		rights, err := manifests(folder)
		if err != nil {
			return nil, err
		}
		objects = append(objects, rights...)
	}
	for _, limited := range []struct {
		asked  bool
		folder string
	}{{f.options.Exec, config.WorkerExec}, {f.options.Dependencies, config.WorkerDependencies}, {f.options.Pins, config.WorkerPins}} {
		if !limited.asked {
			continue
		}
		granted, err := manifests(limited.folder)
		if err != nil {
			return nil, err
		}
		slices.Reverse(granted) // The policy comes before the rights that it limits.
		objects = append(objects, granted...)
	}
	if f.agent() == AgentTrainyard {
		agent, err := manifests(config.WorkerAgent)
		if err != nil {
			return nil, err
		}
		objects = append(objects, without(agent, objects)...)
		if err := f.setAgentImage(objects); err != nil {
			return nil, err
		}
	}
	if f.worker.serves(policyAPI, "validatingadmissionpolicies") {
		return objects, nil
	}
	kept := objects[:0]
	for _, object := range objects {
		if !strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
			kept = append(kept, object)
		}
	}
	return kept, nil
}

// without returns the objects that are not among others.
func without(objects, others []*unstructured.Unstructured) []*unstructured.Unstructured {
	known := map[string]bool{}
	for _, object := range others {
		known[name(object)] = true
	}
	var rest []*unstructured.Unstructured
	for _, object := range objects {
		if !known[name(object)] {
			rest = append(rest, object)
		}
	}
	return rest
}

func (f *observation) setAgentImage(objects []*unstructured.Unstructured) error {
	image := f.agentImage()
	if image == "" {
		return nil
	}
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		if err != nil || len(containers) != 1 {
			return errors.New("the Deployment of the agent does not have one container")
		}
		containers[0].(map[string]any)["image"] = image
		if err := unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers"); err != nil {
			return fmt.Errorf("set the image of the agent: %w", err)
		}
	}
	return nil
}

// boundSecret is the Secret of the worker to which the tokens of the hub are bound. It has no data.
func boundSecret(hubID string) *unstructured.Unstructured {
	secret := newObject("v1", "Secret", workerNamespace, "trainyard-hub-"+hubID)
	secret.SetLabels(map[string]string{labelHub: hubID, "app.kubernetes.io/part-of": "trainyard"})
	secret.SetAnnotations(map[string]string{
		"trainyard.dev/description": "the tokens of the hub with this ID are bound to this Secret, and are invalid when it is deleted",
	})
	return secret
}

// credentialsSecret is the Secret of the hub. Its label lets the manager renew the token in it.
func (f *observation) credentialsSecret(kubeconfig []byte) *unstructured.Unstructured {
	secret := newObject("v1", "Secret", f.options.Namespace, secretName(f.options.Name))
	secret.SetLabels(map[string]string{v1alpha1.LabelRenew: v1alpha1.RenewToken, "app.kubernetes.io/part-of": "trainyard"})
	secret.Object["type"] = "Opaque"
	secret.Object["data"] = map[string]any{kubeconfigs.SecretKey: base64.StdEncoding.EncodeToString(kubeconfig)}
	return secret
}

// renewalRights let the manager write that one Secret.
func (f *observation) renewalRights() []*unstructured.Unstructured {
	const group = "rbac.authorization.k8s.io"
	labels := map[string]string{"app.kubernetes.io/part-of": "trainyard"}
	role := newObject(group+"/v1", "Role", f.options.Namespace, renewalRole(f.options.Name))
	role.SetLabels(labels)
	role.Object["rules"] = []any{map[string]any{
		"apiGroups": []any{""}, "resources": []any{"secrets"}, "resourceNames": []any{secretName(f.options.Name)}, "verbs": []any{"patch"},
	}}
	binding := newObject(group+"/v1", "RoleBinding", f.options.Namespace, renewalRole(f.options.Name))
	binding.SetLabels(labels)
	binding.Object["roleRef"] = map[string]any{"apiGroup": group, "kind": "Role", "name": renewalRole(f.options.Name)}
	binding.Object["subjects"] = []any{map[string]any{
		"kind": "ServiceAccount", "name": f.options.ManagerAccount, "namespace": f.options.Namespace,
	}}
	return []*unstructured.Unstructured{role, binding}
}

// namedFields is the WorkerCluster with the fields that the options name. Other fields stay as they are.
func (f *observation) namedFields() *unstructured.Unstructured {
	connection := map[string]any{"kubeconfigSecretRef": map[string]any{"name": secretName(f.options.Name)}}
	if f.existing() != nil {
		connection["kubeconfigPath"] = nil // A merge patch removes it.
	}
	spec := map[string]any{"connection": connection}
	price := map[string]any{}
	for key, value := range pairs(f.options.Prices) {
		price[key], spec["price"] = value, price
	}
	object := workerCluster(f.options.Name)
	object.SetLabels(pairs(f.options.Labels))
	object.Object["spec"] = spec
	return object
}

func workerCluster(objectName string) *unstructured.Unstructured {
	return newObject(trainyardAPI, "WorkerCluster", "", objectName)
}

// writeWorkerCluster creates the WorkerCluster, or changes the fields that the options name.
func (f *observation) writeWorkerCluster(ctx context.Context, hub *Cluster) (cluster.Result, error) {
	object := f.namedFields()
	live, err := hub.get(ctx, object)
	switch {
	case err != nil:
		return "", err
	case live != nil:
		return hub.merge(ctx, object, live)
	}
	return cluster.Created, hub.failed("create", object, hub.Create(ctx, object))
}

// built are the objects of the folders that were built. A build costs more than all requests of a join.
var built sync.Map

// manifests returns the objects of a folder of config, as "kubectl kustomize" prints them. The caller may change them.
func manifests(folder string) ([]*unstructured.Unstructured, error) {
	objects, ok := built.Load(folder)
	if !ok {
		fresh, err := build(folder)
		if err != nil {
			return nil, err
		}
		objects, _ = built.LoadOrStore(folder, fresh)
	}
	var copies []*unstructured.Unstructured
	for _, object := range objects.([]*unstructured.Unstructured) {
		copies = append(copies, object.DeepCopy())
	}
	return copies, nil
}

func build(folder string) ([]*unstructured.Unstructured, error) {
	disk := filesys.MakeFsInMemory()
	err := fs.WalkDir(config.Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := config.Files.ReadFile(path)
		if err != nil {
			return err
		}
		return disk.WriteFile("/"+path, data)
	})
	if err != nil {
		return nil, fmt.Errorf("read the manifests in this program: %w", err)
	}
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsRootOnly
	options.Reorder = krusty.ReorderOptionLegacy // Namespaces and CRDs first, webhooks last.
	result, err := krusty.MakeKustomizer(options).Run(disk, "/"+folder)
	if err != nil {
		return nil, fmt.Errorf("build config/%s: %w", folder, err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range result.Resources() {
		data, err := resource.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("build config/%s: %w", folder, err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(data); err != nil {
			return nil, fmt.Errorf("decode an object of config/%s: %w", folder, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
