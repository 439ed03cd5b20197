// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package multikueue

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/kubeconfigs"
)

// Plan is what the import makes of an Observation.
type Plan struct {
	// Clusters are the clusters that a MultiKueueConfig names, sorted.
	Clusters []*Cluster
	// Policies are the DispatchPolicies, sorted.
	Policies []*Policy
	// Queues are the ClusterQueues that MultiKueue dispatches, or dispatched at an earlier import, sorted.
	Queues []*Queue
	// Notes say what the import leaves alone.
	Notes   []string
	options Options
}

// Cluster is what becomes of a MultiKueueCluster.
type Cluster struct {
	Name string
	// Secret and Worker are the objects to apply. They are nil if Kept or Refusal says why.
	Secret, Worker *unstructured.Unstructured
	// Credentials are the credentials in the Secret.
	Credentials *kubeconfigs.Credentials
	// Kept: somebody else has made a WorkerCluster of this name. Lacks are the labels that it needs.
	Kept  bool
	Lacks []string
	// Refusal says why there is no WorkerCluster, and what to do.
	Refusal string
	// configs are the MultiKueueConfigs that name it.
	configs []string
}

// Policy is the DispatchPolicy of a MultiKueueConfig.
type Policy struct {
	Name string
	// Object is the object to apply. It is nil if Refusal says why.
	Object  *unstructured.Unstructured
	Refusal string
}

// Objects returns the objects to apply, in order: a Secret before its WorkerCluster, and policies last.
func (p *Plan) Objects() []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, c := range p.Clusters {
		if c.Worker != nil {
			all = append(all, c.Secret, c.Worker)
		}
	}
	for _, policy := range p.Policies {
		if policy.Object != nil {
			all = append(all, policy.Object)
		}
	}
	return all
}

// Has returns the object of the hub that an object of the plan changes, or nil.
func (o *Observation) Has(object *unstructured.Unstructured) *unstructured.Unstructured {
	return o.objects[keyOf(object)]
}

// Decide returns what to do. An error means that there is nothing to import.
func (o *Observation) Decide(now time.Time) (*Plan, error) {
	if len(o.checks) == 0 {
		return nil, errors.New("no AdmissionCheck of this cluster has the controller " + v1alpha1.ManagedByMultiKueue + ", so MultiKueue dispatches nothing here")
	}
	p := &Plan{options: o.options}
	configs := o.usedConfigs(p)
	p.Queues = o.decideQueues(configs)
	users := map[string][]string{} // The configs of each cluster.
	for _, name := range configs {
		for _, cluster := range o.configs[name].Spec.Clusters {
			users[string(cluster)] = append(users[string(cluster)], name)
		}
		p.Policies = append(p.Policies, o.decidePolicy(p, name))
	}
	for _, name := range slices.Sorted(maps.Keys(users)) {
		p.Clusters = append(p.Clusters, o.decideCluster(name, users[name], now))
	}
	o.noteUnused(p, configs, users)
	if slices.ContainsFunc(p.Policies, func(policy *Policy) bool { return policy.Object != nil }) && o.policies == 0 {
		p.Notes = append(p.Notes, "with the first DispatchPolicy of a hub, new jobs that no policy selects wait; a policy for all other jobs: "+
			o.options.kubectl()+` create -f - <<< '{"apiVersion":"trainyard.dev/v1alpha1","kind":"DispatchPolicy","metadata":{"name":"everything-else"}}'`)
	}
	return p, nil
}

// usedConfigs returns the MultiKueueConfigs that AdmissionChecks name, sorted.
func (o *Observation) usedConfigs(p *Plan) []string {
	used := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(o.checks)) {
		parameters := o.checks[name].Spec.Parameters
		if _, exists := o.configs[parameters.Name]; !exists || parameters.Kind != configKind {
			p.Notes = append(p.Notes, fmt.Sprintf("AdmissionCheck %q names %s %q, which does not exist, so its ClusterQueues cannot be imported",
				name, cmp.Or(parameters.Kind, configKind), parameters.Name))
			continue
		}
		used[parameters.Name] = true
	}
	return slices.Sorted(maps.Keys(used))
}

func (o *Observation) noteUnused(p *Plan, configs []string, users map[string][]string) {
	for _, name := range slices.Sorted(maps.Keys(o.configs)) {
		if !slices.Contains(configs, name) {
			p.Notes = append(p.Notes, fmt.Sprintf("MultiKueueConfig %q is not imported, because no AdmissionCheck names it", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.clusters)) {
		if users[name] == nil {
			p.Notes = append(p.Notes, fmt.Sprintf("MultiKueueCluster %q is not imported, because no MultiKueueConfig of an AdmissionCheck names it", name))
		}
	}
}

// decideCluster decides about a cluster that some configs name.
func (o *Observation) decideCluster(name string, configs []string, now time.Time) *Cluster {
	c := &Cluster{Name: name, configs: configs}
	if worker := o.objects[key(workerKind, name)]; worker != nil && !isOf(worker, clusterKind, name) {
		c.Kept = true
		for _, label := range labelsOf(configs) {
			if worker.GetLabels()[label] != labelValue {
				c.Lacks = append(c.Lacks, label+"="+labelValue)
			}
		}
		return c
	}
	kubeconfig, err := o.kubeconfigOf(name, configs)
	if err == nil {
		if c.Credentials, err = kubeconfigs.Parse(kubeconfig, now); err != nil {
			err = fmt.Errorf("the kubeconfig in its Secret is refused:\n%w", err)
		}
	}
	if secret := o.objects[key(secretKind, secretName(name))]; err == nil && secret != nil && !isOf(secret, clusterKind, name) {
		err = fmt.Errorf("there is a Secret %q in namespace %q already, and this command has not made it: delete it, or give it another name",
			secretName(name), o.options.Namespace)
	}
	if err != nil {
		c.Refusal, c.Credentials = err.Error(), nil
		return c
	}
	c.Secret = secretOf(name, o.options.Namespace, kubeconfig)
	c.Worker = workerOf(name, configs)
	return c
}

// kubeconfigOf returns the kubeconfig of a cluster. The error says what to do.
func (o *Observation) kubeconfigOf(name string, configs []string) ([]byte, error) {
	c, exists := o.clusters[name]
	if !exists {
		return nil, fmt.Errorf("MultiKueueConfig %s names it, and there is no such MultiKueueCluster", quoted(configs))
	}
	switch source := c.Spec.ClusterSource; sourceOf(c) {
	case fromProfile:
		return nil, fmt.Errorf("its credentials come from ClusterProfile %q, which Trainyard does not read; with the rights of an admin on that cluster run:\n"+
			"%s", source.ClusterProfileRef.Name, o.options.register(name, configs))
	case fromPath:
		return nil, fmt.Errorf("its kubeconfig is the file %s in the pod of Kueue, which cannot be read from here; with the rights of an admin on that cluster run:\n"+
			"%s", source.KubeConfig.Location, o.options.register(name, configs))
	default:
		secret := o.secrets[source.KubeConfig.Location]
		switch {
		case secret == nil:
			return nil, fmt.Errorf("there is no Secret %q in namespace %q; if Kueue runs in another namespace, name it with --kueue-namespace",
				source.KubeConfig.Location, o.options.KueueNamespace)
		case len(secret.Data[kubeconfigs.SecretKey]) == 0:
			return nil, fmt.Errorf("its Secret %q in namespace %q has nothing under the key %q; %s", secret.Name, secret.Namespace,
				kubeconfigs.SecretKey, kubeconfigs.OtherKeys(secret.Data))
		}
		return secret.Data[kubeconfigs.SecretKey], nil
	}
}

// sourceKind says where MultiKueue gets the credentials of a cluster.
type sourceKind int

const (
	fromSecret sourceKind = iota
	fromPath
	fromProfile
)

func sourceOf(c *kueues.MultiKueueCluster) sourceKind {
	switch {
	case c.Spec.ClusterSource.ClusterProfileRef.Name != "":
		return fromProfile
	case c.Spec.ClusterSource.KubeConfig.LocationType == "Path":
		return fromPath
	}
	return fromSecret
}

// decidePolicy decides about the policy of a config.
func (o *Observation) decidePolicy(p *Plan, name string) *Policy {
	policy := &Policy{Name: name}
	if live := o.objects[key(policyKind, name)]; live != nil && !isOf(live, configKind, name) {
		policy.Refusal = "a DispatchPolicy of this name is there, and this command has not made it: give it another name, and repeat the import"
		return policy
	}
	var queues []*Queue
	for _, queue := range p.Queues {
		if queue.Config == name {
			queues = append(queues, queue)
		}
	}
	jobs := selected(queues)
	if len(jobs) == 0 {
		policy.Refusal = "no LocalQueue leads to a ClusterQueue that dispatches through this MultiKueueConfig: repeat the import when there is one"
		return policy
	}
	for _, other := range jobs.others(o.local, queues) {
		p.Notes = append(p.Notes, fmt.Sprintf("DispatchPolicy %q selects by namespace and name of the queue, so it selects the jobs of LocalQueue %s too", name, other))
	}
	policy.Object = policyOf(name, o.configs[name].Spec.Clusters, jobs, queues)
	return policy
}

// quoted returns names for a sentence.
func quoted(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(quoted, ", ")
}

// These are the kinds of objects that were imported.
const configKind, clusterKind = string(kueues.KindMultiKueueConfig), string(kueues.KindMultiKueueCluster)

var (
	workerKind = v1alpha1.GroupVersion.WithKind("WorkerCluster")
	policyKind = v1alpha1.GroupVersion.WithKind("DispatchPolicy")
)
