// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// JobSetImage is the image of JobSet's manager on clusters that run it as a Deployment.
const JobSetImage = "trainyard/jobset-manager:latest"

// probeTimeout is how many seconds a probe may take on a machine with other work.
const probeTimeout = 15

const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// DeployKustomization applies a kustomization to a cluster with real kubelets, and waits until its Deployments are
// available. Their pods run on the node of the control plane, with images that this node has. There may be simulated
// nodes too. change, if it is not nil, may change each Deployment.
func (c *Cluster) DeployKustomization(ctx context.Context, dir string, change func(*appsv1.Deployment)) error {
	text, err := c.Kubectl(ctx, "kustomize", dir)
	if err != nil {
		return err
	}
	// The only JobSet manager of a cluster does not end when it renews its lease too late.
	text = bytes.ReplaceAll(text, []byte("leaderElect: true"), []byte("leaderElect: false"))
	path := filepath.Join(c.Dir, "deploy-"+filepath.Base(filepath.Dir(dir))+"-"+filepath.Base(dir)+".yaml")
	if err := writeFile(path, text); err != nil {
		return err
	}
	objects, err := ReadObjects(path)
	if err != nil {
		return err
	}
	var deployed []*unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		if err := onControlPlane(object, change); err != nil {
			return fmt.Errorf("change Deployment %q: %w", object.GetName(), err)
		}
		deployed = append(deployed, object)
	}
	if err := c.ApplyObjects(ctx, objects...); err != nil {
		return err
	}
	for _, object := range deployed {
		if _, err := c.Kubectl(ctx, "rollout", "status", "deployment/"+object.GetName(),
			"--namespace="+object.GetNamespace(), "--timeout="+startTimeout.String()); err != nil {
			return err
		}
	}
	return nil
}

// onControlPlane makes a Deployment's pods run on the control plane, and makes the changes of the caller.
func onControlPlane(object *unstructured.Unstructured, change func(*appsv1.Deployment)) error {
	deployment := &appsv1.Deployment{}
	convert := runtime.DefaultUnstructuredConverter
	if err := convert.FromUnstructured(object.Object, deployment); err != nil {
		return err
	}
	pod := &deployment.Spec.Template.Spec
	pod.NodeSelector = map[string]string{controlPlaneLabel: ""}
	pod.Tolerations = append(pod.Tolerations, corev1.Toleration{Key: controlPlaneLabel, Operator: corev1.TolerationOpExists})
	for i := range pod.Containers {
		container := &pod.Containers[i]
		container.ImagePullPolicy = corev1.PullNever
		for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
			if probe != nil {
				probe.TimeoutSeconds = probeTimeout
			}
		}
	}
	if change != nil {
		change(deployment)
	}
	var err error
	object.Object, err = convert.ToUnstructured(deployment)
	return err
}

// deployJobSet runs JobSet's manager as its own manifests do. It returns when the API server calls its webhooks.
func (c *Cluster) deployJobSet(ctx context.Context) error {
	dir, err := ModuleDir(ctx, jobSetModule)
	if err != nil {
		return err
	}
	err = c.DeployKustomization(ctx, filepath.Join(dir, "config", "default"), func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Image = JobSetImage
	})
	if err != nil {
		return fmt.Errorf("deploy JobSet: %w", err)
	}
	return c.waitFor(ctx, "JobSet's webhooks to be called", c.probeJobSetDefaults)
}
