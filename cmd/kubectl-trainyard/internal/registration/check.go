// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Level says what an item of the preflight means.
type Level int

// The levels.
const (
	// OK: there is nothing to do.
	OK Level = iota
	// Warn: it may work, and somebody should look.
	Warn
	// Fail: it cannot work, so nothing is written.
	Fail
)

// String returns the level as it is printed.
func (l Level) String() string {
	switch l {
	case Fail:
		return "FAIL"
	case Warn:
		return "warn"
	case OK:
	}
	return "ok"
}

// Item is one item of the preflight.
type Item struct {
	Level Level
	Side  Side
	Text  string
}

// String returns the item in one line.
func (i Item) String() string {
	return fmt.Sprintf("%-4s  %-6s  %s", i.Level, i.Side, strings.ReplaceAll(i.Text, "\n", "\n              "))
}

// checklist collects items.
type checklist struct{ items []Item }

func (l *checklist) add(level Level, side Side, format string, args ...any) {
	l.items = append(l.items, Item{Level: level, Side: side, Text: fmt.Sprintf(format, args...)})
}

// faults returns the items that fail as one error, or nil.
func faults(items []Item) error {
	var all *multierror.Error
	for _, item := range items {
		if item.Level == Fail {
			all = multierror.Append(all, errors.New(item.Text))
		}
	}
	return all.ErrorOrNil()
}

// maxSkew is how far two clocks may be apart without a warning. The manager renews tokens by its own clock.
const maxSkew = 30 * time.Second

// Commands that install what a worker lacks, in the versions that the tests use.
const (
	trainerCRDs = `apply --server-side -k "https://github.com/kubeflow/trainer.git/manifests/base/crds?ref=v2.3.0"`
	jobSet      = "apply --server-side -f https://github.com/kubernetes-sigs/jobset/releases/download/v0.12.0/manifests.yaml"
)

// check judges what was read. It returns a line for each item, the hub's first.
func (f *observation) check() []Item {
	l := &checklist{}
	if f.checkReachable(l, HubSide, &f.hub) {
		f.checkHub(l)
	}
	if f.checkReachable(l, WorkerSide, &f.worker) {
		f.checkWorker(l)
		f.checkRunner(l)
	}
	f.checkAddress(l)
	if f.hub.err == nil && f.worker.err == nil {
		f.checkIdentity(l)
		f.checkClocks(l)
	}
	slices.SortStableFunc(l.items, func(a, b Item) int { return strings.Compare(string(a.Side), string(b.Side)) })
	return l.items
}

// checkReachable returns whether there is more to say about a cluster.
func (f *observation) checkReachable(l *checklist, side Side, c *clusterState) bool {
	where := c.host
	if c.context != "" {
		where += fmt.Sprintf(", context %q", c.context)
	}
	switch {
	case apierrors.IsUnauthorized(c.err):
		l.add(Fail, side, "%s answers 401 Unauthorized: you must be logged in to it", where)
	case apierrors.IsForbidden(c.err):
		l.add(Fail, side, "%s: %v: join needs the rights of an admin", where, c.err)
	case c.err != nil:
		l.add(Fail, side, "%s: %v", where, c.err)
	default:
		l.add(OK, side, "Kubernetes %s at %s", c.version, where)
	}
	return c.err == nil
}

func (f *observation) checkHub(l *checklist) {
	if f.hub.serves(trainyardAPI, "workerclusters") {
		l.add(OK, HubSide, "CRDs of Trainyard: %s", trainyardAPI)
	} else {
		l.add(Fail, HubSide, "Trainyard is not installed here (there is no %s workerclusters), or this is not the hub: "+
			"name the hub with --hub-context", trainyardAPI)
	}
	if f.hub.serves(trainJobAPI, "trainjobs") {
		l.add(OK, HubSide, "CRDs of Kubeflow Trainer: %s", trainJobAPI)
	} else {
		l.add(Fail, HubSide, "there are no CRDs of Kubeflow Trainer: %s %s", f.hub.kubectl, trainerCRDs)
	}
	checkRights(l, HubSide, f.hub.denied)
}

func checkRights(l *checklist, side Side, denied []string) {
	if len(denied) == 0 {
		l.add(OK, side, "your rights suffice")
		return
	}
	l.add(Fail, side, "you lack rights, which an admin has:\n%s", strings.Join(denied, "\n"))
}

func (f *observation) checkWorker(l *checklist) {
	kubectl := f.worker.kubectl
	switch {
	case f.worker.serves(trainJobAPI, "trainjobs") && f.worker.serves(trainJobAPI, "clustertrainingruntimes"):
		l.add(OK, WorkerSide, "CRDs of Kubeflow Trainer: %s", trainJobAPI)
	case f.options.CopyCRDs:
		l.add(OK, WorkerSide, "CRDs of Kubeflow Trainer are copied from the hub")
	default:
		l.add(Fail, WorkerSide, "there are no CRDs of Kubeflow Trainer: repeat with --copy-crds, which copies them from the hub, or\n%s %s",
			kubectl, trainerCRDs)
	}
	controller, found := f.deployments[jobSetDeployment]
	switch {
	case !f.worker.serves(jobSetAPI, "jobsets"):
		l.add(Fail, WorkerSide, "there is no JobSet (%s jobsets):\n%s %s", jobSetAPI, kubectl, jobSet)
	case found:
		l.add(OK, WorkerSide, "JobSet %s in namespace %s", controller.version(), controller.namespace)
	case f.deploymentsErr != nil:
		l.add(OK, WorkerSide, "JobSet: %s", jobSetAPI)
	default:
		l.add(Warn, WorkerSide, "JobSet: %s is served, but there is no Deployment %s: make sure that JobSet's controller runs",
			jobSetAPI, jobSetDeployment)
	}
	switch {
	case f.worker.serves(policyAPI, "validatingadmissionpolicies"):
	case f.options.Exec:
		l.add(Fail, WorkerSide, "there are no ValidatingAdmissionPolicies before Kubernetes 1.30, and one of them says in which namespaces the "+
			"hub may execute commands: leave --exec out")
	case f.options.Dependencies:
		l.add(Fail, WorkerSide, "there are no ValidatingAdmissionPolicies before Kubernetes 1.30, and one of them says which Secrets the "+
			"hub may write: leave --dependencies out")
	case f.options.Pins:
		l.add(Fail, WorkerSide, "there are no ValidatingAdmissionPolicies before Kubernetes 1.30, and one of them says which runtimes the "+
			"hub may delete: leave --pins out")
	default:
		l.add(Warn, WorkerSide, "there are no ValidatingAdmissionPolicies before Kubernetes 1.30: users can change the marks of copies in "+
			"their own namespaces")
	}
	checkRights(l, WorkerSide, f.worker.denied)
}

// agent is what runs TrainJobs on the worker, as the caller has asked for it.
func (f *observation) agent() Agent {
	if f.options.Agent != AgentAuto {
		return f.options.Agent
	}
	if _, found := f.deployments[trainerDeployment]; found {
		return AgentTrainer
	}
	return AgentTrainyard
}

// checkRunner looks at what runs TrainJobs: one controller, not two.
func (f *observation) checkRunner(l *checklist) {
	trainer, hasTrainer := f.deployments[trainerDeployment]
	agent, hasAgent := f.deployments[agentDeployment]
	switch {
	case f.deploymentsErr != nil && f.options.Agent != AgentNone:
		l.add(Fail, WorkerSide, "it is not known what runs TrainJobs: %v; say it with --agent=none, and see to it yourself", f.deploymentsErr)
	case hasTrainer && hasAgent && f.options.Agent != AgentNone:
		l.add(Fail, WorkerSide, "both Kubeflow Trainer %s (namespace %s) and the worker-agent (namespace %s) are installed, and only one of them "+
			"can run TrainJobs: delete one of the Deployments %s and %s",
			trainer.version(), trainer.namespace, agent.namespace, trainerDeployment, agentDeployment)
	case hasTrainer && f.options.Agent == AgentTrainyard:
		l.add(Fail, WorkerSide, "Kubeflow Trainer %s runs TrainJobs here (namespace %s): use --agent=trainer, or delete Deployment %s first",
			trainer.version(), trainer.namespace, trainerDeployment)
	case f.agent() == AgentTrainyard:
		f.checkImage(l, agent, hasAgent)
	case f.options.Agent == AgentTrainer && !hasTrainer:
		l.add(Warn, WorkerSide, "there is no Deployment %s: make sure that Kubeflow Trainer runs", trainerDeployment)
	case f.agent() == AgentTrainer:
		l.add(OK, WorkerSide, "Kubeflow Trainer %s runs TrainJobs (namespace %s); without the worker-agent nothing is fenced here",
			trainer.version(), trainer.namespace)
	default:
		l.add(Warn, WorkerSide, "join installs nothing that runs TrainJobs (--agent=none): make sure that the worker-agent or "+
			"Kubeflow Trainer runs")
	}
}

func (f *observation) checkImage(l *checklist, present deployment, found bool) {
	image := f.agentImage()
	switch {
	case image == "":
		l.add(Warn, WorkerSide, "the worker-agent will run TrainJobs, with the image %s of the manifests, which is in no registry: "+
			"name yours with --agent-image", defaultAgentImage)
	case found && present.image == image:
		l.add(OK, WorkerSide, "the worker-agent runs TrainJobs, with the image %s", image)
	default:
		l.add(OK, WorkerSide, "the worker-agent will run TrainJobs, with the image %s", image)
	}
}

// agentImage is the image that the agent is to have, or empty for the image of the manifests.
func (f *observation) agentImage() string {
	if f.options.AgentImage != "" {
		return f.options.AgentImage
	}
	if present := f.deployments[agentDeployment].image; present != defaultAgentImage {
		return present
	}
	return ""
}

// checkIdentity compares the worker with what the hub has.
func (f *observation) checkIdentity(l *checklist) {
	if f.hub.id == f.worker.id {
		l.add(Fail, WorkerSide, "it is the hub itself, and a hub cannot be its own worker: --context names the worker, and --hub-context the hub")
		return
	}
	for i := range f.registered {
		// The hub would call it Duplicate.
		if other := &f.registered[i]; other.Name != f.options.Name && other.Status.ClusterID == f.worker.id {
			l.add(Fail, WorkerSide, "it is WorkerCluster %q of the hub already", other.Name)
		}
	}
	worker := f.existing()
	switch {
	case worker == nil:
		l.add(OK, HubSide, "WorkerCluster %q is new", f.options.Name)
	case worker.DeletionTimestamp != nil:
		l.add(Fail, HubSide, "WorkerCluster %q is being deleted: wait until it is gone", f.options.Name)
	case worker.Status.ClusterID != "" && worker.Status.ClusterID != f.worker.id:
		l.add(Fail, HubSide, "WorkerCluster %q is another cluster (ID %s, not %s): choose another name, or take that cluster out with "+
			"\"kubectl trainyard leave %s\"", f.options.Name, worker.Status.ClusterID, f.worker.id, f.options.Name)
	case worker.Status.ClusterID == "":
		l.add(Warn, HubSide, "WorkerCluster %q is there, and the hub has never reached it", f.options.Name)
	default:
		l.add(OK, HubSide, "WorkerCluster %q is this cluster", f.options.Name)
	}
	f.checkConnection(l, worker)
	for _, id := range f.hubs {
		if id != string(f.hub.id) {
			l.add(Warn, WorkerSide, "another hub has joined it too (ID %s): hubs of one worker trust each other", id)
		}
	}
}

// checkConnection says what happens to credentials that somebody else has made.
func (f *observation) checkConnection(l *checklist, worker *v1alpha1.WorkerCluster) {
	if worker == nil {
		return
	}
	if path := worker.Spec.Connection.KubeconfigPath; path != "" {
		l.add(Warn, HubSide, "its kubeconfig was the file %s of the manager, and will be Secret %s", path, secretName(f.options.Name))
	}
	if reference := worker.Spec.Connection.KubeconfigSecretRef; reference != nil && reference.Name != secretName(f.options.Name) {
		l.add(Warn, HubSide, "its kubeconfig was in Secret %s, and will be in Secret %s", reference.Name, secretName(f.options.Name))
	}
}

func (f *observation) checkClocks(l *checklist) {
	hub, known := f.hub.clock.get()
	worker, alsoKnown := f.worker.clock.get()
	skew := (worker - hub).Round(time.Second)
	switch {
	case !known || !alsoKnown:
		l.add(Warn, WorkerSide, "its time is not known, because an API server tells none")
	case skew.Abs() > maxSkew:
		l.add(Warn, WorkerSide, "its clock is %s %s the hub's: tokens are renewed by the hub's clock", skew.Abs(), aheadOf(skew))
	default:
		l.add(OK, WorkerSide, "its clock agrees with the hub's")
	}
}

func aheadOf(skew time.Duration) string {
	if skew < 0 {
		return "behind"
	}
	return "ahead of"
}
