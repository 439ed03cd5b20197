// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// workerNamespace is the namespace of config/worker.
	workerNamespace = "trainyard-system"
	// agentNamespace is the namespace of config/worker-agent.
	agentNamespace = "kubeflow-system"
	// account is the account of config/worker.
	account = "trainyard-hub"
	// lastingSecret has the token without an end that releases before join have made.
	lastingSecret = "trainyard-hub-token" //nolint:gosec // It is a name.
)

// The Deployments that run TrainJobs and JobSets, as their projects name them.
const (
	agentDeployment   = "trainyard-worker-agent"
	trainerDeployment = "kubeflow-trainer-controller-manager"
	jobSetDeployment  = "jobset-controller-manager"
)

// The APIs that the clusters must serve.
const (
	trainJobAPI  = "trainer.kubeflow.org/v1alpha1"
	jobSetAPI    = "jobset.x-k8s.io/v1alpha2"
	trainyardAPI = "trainyard.dev/v1alpha1"
	policyAPI    = "admissionregistration.k8s.io/v1"
)

// clusterState are what was read of one cluster.
type clusterState struct {
	context, host string
	// kubectl is how printed commands call kubectl.
	kubectl string
	// err is why nothing could be read.
	err     error
	version string
	id      types.UID
	// resources are the served ones of the APIs above, by API.
	resources map[string][]string
	// denied are the rights that the caller lacks.
	denied []string
	// clock knows how far the cluster's clock is ahead of the caller's.
	clock *serverClock
}

func (f *clusterState) serves(api, resource string) bool {
	return slices.Contains(f.resources[api], resource)
}

// deployment is a Deployment that matters here.
type deployment struct {
	namespace, image string
}

// version is the tag of the image.
func (d deployment) version() string {
	if _, tag, found := strings.Cut(path.Base(d.image), ":"); found {
		return tag
	}
	return "of image " + d.image
}

// observation are what was read of both clusters.
type observation struct {
	options     Options
	hub, worker clusterState
	// registered are the hub's WorkerClusters.
	registered []v1alpha1.WorkerCluster
	// deployments are the worker's Deployments, by name. deploymentsErr is why they are not known.
	deployments    map[string]deployment
	deploymentsErr error
	// hubs are the IDs of the hubs that have joined the worker.
	hubs []string
	// hasLastingToken is true if the worker has a token that releases before join have made.
	hasLastingToken bool
	// address is where the hub will reach the worker. addressFault is what is wrong with the kubeconfig.
	address      string
	addressFault error
	proxied      bool
}

// existing returns the WorkerCluster of the name, or nil.
func (f *observation) existing() *v1alpha1.WorkerCluster {
	for i := range f.registered {
		if f.registered[i].Name == f.options.Name {
			return &f.registered[i]
		}
	}
	return nil
}

// observe reads one cluster.
func (c *Cluster) observe(ctx context.Context, apis ...string) clusterState {
	f := clusterState{context: c.Context, kubectl: c.kubectl(), host: c.Config.Host, clock: c.clock, resources: map[string][]string{}}
	version, err := c.kubernetes.Discovery().ServerVersion()
	if err != nil {
		f.err = err
		return f
	}
	f.version = version.GitVersion
	system := &corev1.Namespace{}
	if err := c.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		f.err = err
		return f
	}
	f.id = system.UID
	for _, api := range apis {
		list, err := c.kubernetes.Discovery().ServerResourcesForGroupVersion(api)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			f.err = fmt.Errorf("list the resources of %s: %w", api, err)
			return f
		default:
			for i := range list.APIResources {
				f.resources[api] = append(f.resources[api], list.APIResources[i].Name)
			}
		}
	}
	return f
}

// workerClusters returns the hub's WorkerClusters.
func (c *Cluster) workerClusters(ctx context.Context) ([]v1alpha1.WorkerCluster, error) {
	workers := &v1alpha1.WorkerClusterList{}
	if err := c.List(ctx, workers); err != nil {
		return nil, fmt.Errorf("list WorkerClusters on the hub: %w", err)
	}
	return workers.Items, nil
}

// findDeployments returns the Deployments that matter, by name.
func (c *Cluster) findDeployments(ctx context.Context) (map[string]deployment, error) {
	found := map[string]deployment{}
	for _, wanted := range []string{agentDeployment, trainerDeployment, jobSetDeployment} {
		list := &appsv1.DeploymentList{}
		if err := c.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: wanted}); err != nil {
			return nil, err
		}
		for i := range list.Items {
			d := &list.Items[i]
			if containers := d.Spec.Template.Spec.Containers; len(containers) > 0 {
				found[wanted] = deployment{namespace: d.Namespace, image: containers[0].Image}
			}
		}
	}
	return found, nil
}

// joinedHubs returns the IDs of the hubs that have joined a worker, sorted.
func (c *Cluster) joinedHubs(ctx context.Context) ([]string, error) {
	list := &corev1.SecretList{}
	if err := c.List(ctx, list, client.InNamespace(workerNamespace), client.HasLabels{labelHub}); err != nil {
		return nil, fmt.Errorf("list Secrets of namespace %q on the worker: %w", workerNamespace, err)
	}
	hubs := map[string]bool{}
	for i := range list.Items {
		hubs[list.Items[i].Labels[labelHub]] = true
	}
	return sorted(hubs), nil
}

// usedBy returns the IDs of the hubs that use the rights on a worker, sorted. Hubs that have registered the worker with
// the scripts of an earlier release share a lasting token, and are known by their ExecutionLeases.
func (c *Cluster) usedBy(ctx context.Context) ([]string, error) {
	joined, err := c.joinedHubs(ctx)
	if err != nil {
		return nil, err
	}
	lasting, err := c.get(ctx, newObject("v1", "Secret", workerNamespace, lastingSecret))
	if lasting == nil || err != nil {
		return joined, err
	}
	leases, err := c.list(ctx, v1alpha1.GroupVersion.WithKind("ExecutionLease"), nil)
	if err != nil {
		return nil, err
	}
	hubs := map[string]bool{}
	for _, id := range joined {
		hubs[id] = true
	}
	for i := range leases {
		hubs[leases[i].GetName()] = true
	}
	return sorted(hubs), nil
}

// pair are the two clusters of a join.
type pair struct{ hub, worker *Cluster }

// observe reads both clusters. If it cannot read something of one cluster, it still reads the other.
func (p pair) observe(ctx context.Context, options Options) *observation {
	f := &observation{options: options}
	f.hub = p.hub.observe(ctx, trainyardAPI, trainJobAPI)
	f.worker = p.worker.observe(ctx, trainJobAPI, jobSetAPI, policyAPI)
	var err error
	if f.hub.err == nil && f.hub.serves(trainyardAPI, "workerclusters") {
		f.registered, err = p.hub.workerClusters(ctx)
		f.hub.err = unlessForbidden(err)
	}
	if f.worker.err == nil {
		var lasting *unstructured.Unstructured
		f.hubs, err = p.worker.joinedHubs(ctx)
		if err == nil {
			lasting, err = p.worker.get(ctx, newObject("v1", "Secret", workerNamespace, lastingSecret))
		}
		f.hasLastingToken, f.worker.err = lasting != nil, unlessForbidden(err)
		f.deployments, f.deploymentsErr = p.worker.findDeployments(ctx)
	}
	f.proxied = p.worker.Config.Proxy != nil
	f.observeAddress(p.worker)
	return f
}

// unlessForbidden drops an error about a right that is missing: the item about rights names it, beside the others.
func unlessForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}
