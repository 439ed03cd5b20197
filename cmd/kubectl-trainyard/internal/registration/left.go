// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/cluster"
)

// left says what of Trainyard is left on the worker, and how an admin removes it.
func (l *Leave) left(ctx context.Context, hubs, ours, others []string) ([]string, error) {
	var lines []string
	kubectl := l.worker.kubectl()
	if len(hubs) > 0 {
		lines = append(lines, fmt.Sprintf("the account %s/%s, its rights and what runs TrainJobs: another hub uses them (ID %s)",
			workerNamespace, account, strings.Join(hubs, ", ")))
	}
	if len(ours) > 0 {
		lines = append(lines, fmt.Sprintf("copies of this hub: %s; delete them: %s delete trainjobs -A -l %s=%s",
			few(ours), kubectl, v1alpha1.LabelHub, l.hubID))
	}
	if len(others) > 0 {
		lines = append(lines, fmt.Sprintf("TrainJobs that are not of this hub: %s", few(others)))
	}
	if len(hubs) == 0 && len(ours)+len(others) > 0 {
		lines = append(lines, fmt.Sprintf("the worker-agent, if it was installed, because it runs these TrainJobs; when they are gone, run the same "+
			"command again, or: %s delete -k config/worker-agent", kubectl))
	}
	for _, of := range []struct {
		kind           schema.GroupVersionKind
		flags, warning string
	}{
		{trainer.SchemeGroupVersion.WithKind(trainer.ClusterTrainingRuntimeKind), "", ""},
		{trainer.SchemeGroupVersion.WithKind(trainer.TrainingRuntimeKind), "-A ", ""},
		{corev1.SchemeGroupVersion.WithKind("Secret"), "-A ", ""},
		{corev1.SchemeGroupVersion.WithKind("ConfigMap"), "-A ", ""},
		{corev1.SchemeGroupVersion.WithKind("ServiceAccount"), "-A ", ""},
		{corev1.SchemeGroupVersion.WithKind("Namespace"), "", ", with all that is in them"},
	} {
		objects, err := l.worker.list(ctx, of.kind, client.MatchingLabels{v1alpha1.LabelPropagatedBy: l.hubID})
		if err != nil {
			return nil, err
		}
		if len(objects) > 0 {
			names := make([]string, len(objects))
			for i := range objects {
				names[i] = keyOf(&objects[i])
			}
			lines = append(lines, fmt.Sprintf("%s that this hub created: %s; delete them%s: %s delete %[1]s %[5]s-l %[6]s=%[7]s",
				cluster.ResourceOf(of.kind).Resource, few(names), of.warning, kubectl, of.flags, v1alpha1.LabelPropagatedBy, l.hubID))
		}
	}
	if len(hubs) > 0 || len(ours)+len(others) > 0 {
		return lines, nil // The next leave names the rest.
	}
	crds, err := l.crds(ctx)
	if err != nil {
		return nil, err
	}
	if len(crds) > 0 {
		lines = append(lines, fmt.Sprintf("CRDs of Trainyard: %s delete crd %s", kubectl, strings.Join(crds, " ")))
	}
	namespaces, err := l.namespaces(ctx)
	if err != nil {
		return nil, err
	}
	for _, namespace := range namespaces {
		lines = append(lines, fmt.Sprintf("namespace %s, if you have nothing else in it: %s delete namespace %[1]s", namespace, kubectl))
	}
	return append(lines, "the CRDs and controllers of Kubeflow Trainer and JobSet, which Trainyard has not installed"), nil
}

// removePinned deletes the pinned runtimes of this hub that no TrainJob names. The manager does that half a minute after the last
// copy, and cannot when its rights are gone.
func (l *Leave) removePinned(ctx context.Context) error {
	kind := trainer.SchemeGroupVersion.WithKind(trainer.TrainingRuntimeKind)
	pinned, err := l.worker.list(ctx, kind, client.MatchingLabels{v1alpha1.LabelPropagatedBy: l.hubID})
	if err != nil {
		return err
	}
	jobs, err := l.worker.list(ctx, trainJobKind, nil)
	if err != nil {
		return err
	}
	named := map[types.NamespacedName]bool{}
	for i := range jobs {
		if of, key := trainjobs.RuntimeOf(&jobs[i]); of == kind.Kind {
			named[key] = true
		}
	}
	for i := range pinned {
		if pinned[i].GetLabels()[v1alpha1.LabelPinned] == "" || named[client.ObjectKeyFromObject(&pinned[i])] {
			continue
		}
		if err := l.remove(ctx, l.worker, &pinned[i]); err != nil {
			return err
		}
	}
	return nil
}

// releases names the Helm releases that have installed account or agent, with the command that removes them. Helm does
// not see what leave deletes.
func (l *Leave) releases(ctx context.Context) ([]string, error) {
	runners, err := l.worker.findDeployments(ctx)
	if err != nil {
		return nil, fmt.Errorf("list Deployments on the worker: %w", err)
	}
	candidates := []*unstructured.Unstructured{newObject("v1", "ServiceAccount", workerNamespace, account)}
	if agent, found := runners[agentDeployment]; found {
		candidates = append(candidates, newObject("apps/v1", "Deployment", agent.namespace, agentDeployment))
	}
	found := map[string]bool{}
	for _, candidate := range candidates {
		live, err := l.worker.get(ctx, candidate)
		if err != nil {
			return nil, err
		}
		if live == nil {
			continue
		}
		name, namespace := live.GetAnnotations()["meta.helm.sh/release-name"], live.GetAnnotations()["meta.helm.sh/release-namespace"]
		if name != "" {
			found[fmt.Sprintf("Helm release %[1]s, which Helm shows as deployed: %[2]s uninstall %[1]s --namespace %[3]s",
				name, l.worker.helm(), namespace)] = true
		}
	}
	return sorted(found), nil
}

// namespaces returns the namespaces of join that are left, without one that Kubeflow Trainer uses.
func (l *Leave) namespaces(ctx context.Context) ([]string, error) {
	runners, err := l.worker.findDeployments(ctx)
	if err != nil {
		return nil, fmt.Errorf("list Deployments on the worker: %w", err)
	}
	var names []string
	for _, namespace := range []string{workerNamespace, agentNamespace} {
		if runners[trainerDeployment].namespace == namespace {
			continue
		}
		if there, err := l.worker.hasNamespace(ctx, namespace); err != nil {
			return nil, err
		} else if there {
			names = append(names, namespace)
		}
	}
	return names, nil
}

// crds returns the CRDs of a worker's agent that are left.
func (l *Leave) crds(ctx context.Context) ([]string, error) {
	var names []string
	for _, crd := range []string{"capacityreports.trainyard.dev", "executionleases.trainyard.dev"} {
		live, err := l.worker.get(ctx, newObject("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", crd))
		if err != nil {
			return nil, err
		}
		if live != nil {
			names = append(names, crd)
		}
	}
	return names, nil
}

// few lists the first of many names.
func few(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
