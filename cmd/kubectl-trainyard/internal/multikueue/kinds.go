// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package multikueue

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/cluster"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/hub"
)

const (
	// controllerName is the controller of MultiKueue's AdmissionChecks.
	controllerName = "kueue.x-k8s.io/multikueue"
	// queueLabel names the LocalQueue of a job.
	queueLabel = "kueue.x-k8s.io/queue-name"
	configKind = "MultiKueueConfig"
)

// These are the fields of Kueue's objects that the import reads.
type (
	admissionCheck struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			ControllerName string     `json:"controllerName"`
			Parameters     parameters `json:"parameters"`
		} `json:"spec"`
	}
	parameters struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	}
	config struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Clusters []string `json:"clusters"`
		} `json:"spec"`
	}
	kueueCluster struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			ClusterSource source `json:"clusterSource"`
		} `json:"spec"`
	}
	source struct {
		KubeConfig struct {
			Location     string `json:"location"`
			LocationType string `json:"locationType"`
		} `json:"kubeConfig"`
		ClusterProfileRef struct {
			Name string `json:"name"`
		} `json:"clusterProfileRef"`
	}
	clusterQueue struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			StopPolicy              string `json:"stopPolicy"`
			AdmissionChecksStrategy struct {
				AdmissionChecks []rule `json:"admissionChecks"`
			} `json:"admissionChecksStrategy"`
		} `json:"spec"`
	}
	localQueue struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			ClusterQueue string `json:"clusterQueue"`
		} `json:"spec"`
	}
	workload struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			QueueName string `json:"queueName"`
		} `json:"spec"`
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
)

// rule is an AdmissionCheck of a ClusterQueue.
type rule struct {
	Name      string   `json:"name"`
	OnFlavors []string `json:"onFlavors,omitempty"`
}

// each reads all objects of a kind of Kueue.
func each[T any](ctx context.Context, h *hub.Hub, kind string, take func(T)) error {
	var wrong error
	err := h.EachObject(ctx, cluster.KueueVersion.WithKind(kind), func(object *unstructured.Unstructured) {
		var read T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &read); err != nil && wrong == nil {
			wrong = fmt.Errorf("read %s %q: %w", kind, object.GetName(), err)
		}
		take(read)
	})
	return cmp.Or(err, wrong)
}
