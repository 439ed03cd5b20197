// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/config"
	"github.com/trainyard/trainyard/internal/cluster"
	"github.com/trainyard/trainyard/test/check"
)

// TestManifests builds the folders that the program contains, which fails if one of them refers to a folder that is not
// embedded.
func TestManifests(t *testing.T) {
	wanted := map[string][]string{
		config.Worker:       {"serviceaccount/trainyard-hub in trainyard-system", "role.rbac.authorization.k8s.io/trainyard-hub in trainyard-system"},
		config.WorkerLogs:   {"clusterrole.rbac.authorization.k8s.io/trainyard-hub-logs"},
		config.WorkerExec:   {"clusterrole.rbac.authorization.k8s.io/trainyard-hub-exec", "validatingadmissionpolicy.admissionregistration.k8s.io/trainyard-exec"},
		config.WorkerLookup: {"clusterrole.rbac.authorization.k8s.io/trainyard-hub-lookup"},
		config.WorkerDependencies: {
			"clusterrole.rbac.authorization.k8s.io/trainyard-hub-dependencies",
			"validatingadmissionpolicy.admissionregistration.k8s.io/trainyard-dependencies",
		},
		config.WorkerPins: {
			"clusterrole.rbac.authorization.k8s.io/trainyard-hub-pins", "validatingadmissionpolicy.admissionregistration.k8s.io/trainyard-pins",
		},
		config.WorkerAgent: {"deployment.apps/trainyard-worker-agent in kubeflow-system", "customresourcedefinition.apiextensions.k8s.io/executionleases.trainyard.dev"},
	}
	c, err := cluster.New(&rest.Config{})
	check.Must(t, err)
	for folder, names := range wanted {
		objects, err := manifests(folder)
		check.Must(t, err)
		found := map[string]bool{}
		for _, object := range objects {
			found[name(object)] = true
			if object.GetLabels()["app.kubernetes.io/part-of"] != "trainyard" {
				t.Errorf("%s lacks the label of the kustomization", name(object))
			}
			if namespaced, err := c.IsObjectNamespaced(object); err != nil || namespaced != (object.GetNamespace() != "") {
				t.Errorf("%s is in a namespace: %t, %v", name(object), namespaced, err)
			}
		}
		for _, name := range names {
			if !found[name] {
				t.Errorf("config/%s lacks %s", folder, name)
			}
		}
	}
}

// TestExecOfNothing checks that nobody gets the rights of config/worker-exec, config/worker-dependencies or config/worker-pins
// where nothing can limit them.
func TestExecOfNothing(t *testing.T) {
	for flag, options := range map[string]Options{"--exec": {Exec: true, Agent: AgentNone}, "--dependencies": {Dependencies: true, Agent: AgentNone}, "--pins": {Pins: true, Agent: AgentNone}} {
		t.Run(flag, func(t *testing.T) { testLimitedByNothing(t, flag, options) })
	}
}

func testLimitedByNothing(t *testing.T, flag string, options Options) {
	t.Helper()
	f := &observation{options: options}
	l := &checklist{}
	f.checkWorker(l)
	if !slices.ContainsFunc(l.items, func(i Item) bool { return i.Level == Fail && strings.Contains(i.Text, "leave "+flag+" out") }) {
		t.Errorf("a worker without ValidatingAdmissionPolicies takes %s: %v", flag, l.items)
	}
}

// TestAgentImage checks that a join without an image keeps the present one.
func TestAgentImage(t *testing.T) {
	cases := map[string]struct{ why, flag, present, want string }{
		"Flag":    {"the flag counts", "r/agent:v2", "r/agent:v1", "r/agent:v2"},
		"Present": {"a repeated join is no upgrade", "", "r/agent:v1", "r/agent:v1"},
		"Neither": {"the manifests have one", "", "", defaultAgentImage},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := &observation{options: Options{Agent: AgentTrainyard, AgentImage: tc.flag}, deployments: map[string]deployment{}}
			if tc.present != "" {
				f.deployments[agentDeployment] = deployment{namespace: "kubeflow-system", image: tc.present}
			}
			objects, err := f.workerObjects()
			check.Must(t, err)
			for _, object := range objects {
				if object.GetKind() != "Deployment" {
					continue
				}
				data, err := object.MarshalJSON()
				if err != nil || !strings.Contains(string(data), `"image":"`+tc.want+`"`) {
					t.Errorf("%s: want image %s in %s", tc.why, tc.want, data)
				}
			}
		})
	}
}

// TestLocalAddress checks that addresses which mean another machine to the hub are doubted.
func TestLocalAddress(t *testing.T) {
	cases := map[string]bool{
		"https://127.0.0.1:6443": true, "https://[::1]:6443": true, "https://localhost:6443": true, "https://10.0.0.1": true,
		"https://192.168.1.1:6443": true, "https://169.254.1.1": true, "https://kind-control-plane:6443": true,
		"https://kubernetes.default.svc.cluster.local": true, "https://kubernetes.docker.internal:6443": true, "https://gpu.local": true,
		"https://203.0.113.7:6443": false, "https://gpu-east.example.com": false, "https://ABC.gr7.eu-west-1.eks.amazonaws.com": false,
	}
	for address, want := range cases {
		if why := localAddress(address); (why != "") != want {
			t.Errorf("%s is doubted because it is %q; doubt is %t", address, why, want)
		}
	}
}

// TestRunner checks that a worker never gets two controllers of TrainJobs.
func TestRunner(t *testing.T) {
	trainer := deployment{namespace: "kubeflow-system", image: "ghcr.io/kubeflow/trainer/trainer-controller-manager:v2.3.0"}
	agent := deployment{namespace: "kubeflow-system", image: "r/agent:v1"}
	cases := map[string]struct {
		why   string
		asked Agent
		there map[string]deployment
		level Level
		want  Agent
	}{
		"AutoEmpty":      {"nothing is there", AgentAuto, nil, Warn, AgentTrainyard},
		"AutoTrainer":    {"Kubeflow Trainer goes on", AgentAuto, map[string]deployment{trainerDeployment: trainer}, OK, AgentTrainer},
		"AutoAgent":      {"the agent goes on", AgentAuto, map[string]deployment{agentDeployment: agent}, OK, AgentTrainyard},
		"Both":           {"only one can work", AgentAuto, map[string]deployment{agentDeployment: agent, trainerDeployment: trainer}, Fail, AgentTrainer},
		"SecondAgent":    {"there would be two", AgentTrainyard, map[string]deployment{trainerDeployment: trainer}, Fail, AgentTrainyard},
		"TrainerMissing": {"it may have another name", AgentTrainer, nil, Warn, AgentTrainer},
		"None":           {"the admin sees to it", AgentNone, map[string]deployment{agentDeployment: agent, trainerDeployment: trainer}, Warn, AgentNone},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := &observation{options: Options{Agent: tc.asked}, deployments: tc.there}
			l := &checklist{}
			f.checkRunner(l)
			if len(l.items) != 1 || l.items[0].Level != tc.level || f.agent() != tc.want {
				t.Errorf("%s: %v with agent %s, want level %s and agent %s", tc.why, l.items, f.agent(), tc.level, tc.want)
			}
		})
	}
}

// A tool on the worker must not take a copied CRD for its own: with the CRD it would delete all copies.
func TestCopiedCRDIsNotTracked(t *testing.T) {
	source := newObject("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "trainjobs.trainer.kubeflow.org")
	source.SetLabels(map[string]string{
		"app.kubernetes.io/name": "trainer", "app.kubernetes.io/instance": "platform", "applyset.kubernetes.io/part-of": "id",
	})
	source.Object["spec"] = map[string]any{"scope": "Namespaced"}
	crd := newObject("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "trainjobs.trainer.kubeflow.org")
	fillCRD(crd, source)
	check.Diff(t, map[string]string{"app.kubernetes.io/name": "trainer"}, crd.GetLabels(), "labels of the worker's CRD")
	check.Diff(t, source.Object["spec"], crd.Object["spec"], "spec of the worker's CRD")
}
