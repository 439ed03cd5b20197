// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/yard"
)

// sdk is the TrainerClient of the Kubeflow SDK, as far as it sends requests and reads answers: its methods have the names
// of TrainerClient's, send the same requests in the same order, and return an error where TrainerClient raises one.
type sdk struct {
	user      *yard.User
	namespace string
}

// codeError is the ApiException of the Python client.
type codeError struct {
	code int
	what string
}

// Error says what was answered.
func (e *codeError) Error() string { return fmt.Sprintf("%d for %s", e.code, e.what) }

// Paths of the SDK, below those of their API groups.
const (
	trainerAPI      = "/apis/trainer.kubeflow.org/v1alpha1/"
	clusterRuntimes = trainerAPI + "clustertrainingruntimes"
)

func (s sdk) trainerPath(resource string) string {
	return trainerAPI + "namespaces/" + s.namespace + "/" + resource
}

func (s sdk) corePath(resource string) string {
	return "/api/v1/namespaces/" + s.namespace + "/" + resource
}

// call sends a request, and reads the answer into an object unless that is nil.
func (s sdk) call(ctx context.Context, method, path string, query url.Values, body, into any) error {
	res, err := ask(ctx, s.user, method, path, query, body)
	if err != nil {
		return err
	}
	a, err := read(res)
	switch {
	case err != nil:
		return err
	case a.code < 200 || a.code > 299:
		return &codeError{a.code, method + " " + path + ": " + string(a.body)}
	case into == nil:
		return nil
	}
	return json.Unmarshal(a.body, into)
}

// verifyBackend is what the constructor does. The SDK logs the error, and goes on.
func (s sdk) verifyBackend(ctx context.Context) (version string, err error) {
	var public corev1.ConfigMap
	if err := s.call(ctx, http.MethodGet, "/api/v1/namespaces/kubeflow-system/configmaps/kubeflow-trainer-public", nil, nil, &public); err != nil {
		return "", err
	}
	version, has := public.Data["kubeflow_trainer_version"]
	if !has {
		return "", fmt.Errorf("there is no kubeflow_trainer_version in %v", public.Data)
	}
	return version, nil
}

// sdkRuntime is what the SDK has of a runtime.
type sdkRuntime struct {
	name  string
	nodes int32
	mpi   bool
}

// listRuntimes lists both kinds at once. Only a list of the namespace that is not found is no error.
func (s sdk) listRuntimes(ctx context.Context) (found []sdkRuntime, err error) {
	var all trainer.ClusterTrainingRuntimeList
	var ours trainer.TrainingRuntimeList
	ended := make(chan error, 1)
	go func() { ended <- s.call(ctx, http.MethodGet, clusterRuntimes, nil, nil, &all) }()
	err = s.call(ctx, http.MethodGet, s.trainerPath("trainingruntimes"), nil, nil, &ours)
	if err := <-ended; err != nil {
		return nil, err
	}
	if err != nil && !isNotFound(err) {
		return nil, err
	}
	byName := map[string]*trainer.ClusterTrainingRuntime{}
	for i := range all.Items {
		byName[all.Items[i].Name] = &all.Items[i]
	}
	for i := range ours.Items {
		byName[ours.Items[i].Name] = (*trainer.ClusterTrainingRuntime)(&ours.Items[i])
	}
	for _, one := range byName {
		if one.Labels["trainer.kubeflow.org/framework"] == "" {
			continue
		}
		runtime, err := readRuntime(one)
		if err != nil {
			return nil, err
		}
		found = append(found, runtime)
	}
	slices.SortFunc(found, func(a, b sdkRuntime) int { return strings.Compare(a.name, b.name) })
	return found, nil
}

func isNotFound(err error) bool {
	var answered *codeError
	return errors.As(err, &answered) && answered.code == http.StatusNotFound
}

// getRuntime asks for the namespace's, and only if that is not found for the cluster's.
func (s sdk) getRuntime(ctx context.Context, name string) (sdkRuntime, error) {
	var one trainer.ClusterTrainingRuntime
	err := s.call(ctx, http.MethodGet, s.trainerPath("trainingruntimes/"+name), nil, nil, &one)
	if isNotFound(err) {
		err = s.call(ctx, http.MethodGet, clusterRuntimes+"/"+name, nil, nil, &one)
	}
	if err != nil {
		return sdkRuntime{}, err
	}
	return readRuntime(&one)
}

// readRuntime needs all that the SDK needs.
func readRuntime(one *trainer.ClusterTrainingRuntime) (sdkRuntime, error) {
	policy, jobs := one.Spec.MLPolicy, one.Spec.Template.Spec.ReplicatedJobs
	if one.Name == "" || policy == nil || len(jobs) == 0 || one.Labels["trainer.kubeflow.org/framework"] == "" {
		return sdkRuntime{}, fmt.Errorf("runtime %q is invalid", one.Name)
	}
	for _, job := range jobs {
		if job.Template.Labels["trainer.kubeflow.org/trainjob-ancestor-step"] == "" {
			continue
		}
		for _, c := range job.Template.Spec.Template.Spec.Containers {
			if c.Name != "node" || c.Image == "" {
				continue
			}
			r := sdkRuntime{name: one.Name, nodes: 1, mpi: policy.MPI != nil}
			if policy.NumNodes != nil {
				r.nodes = *policy.NumNodes
			}
			return r, checkDevices(c)
		}
	}
	return sdkRuntime{}, fmt.Errorf("runtime %q has no trainer's container", one.Name)
}

// checkDevices fails for limits without a device that the SDK knows.
func checkDevices(c corev1.Container) error {
	if c.Resources.Limits == nil {
		return nil
	}
	for name := range c.Resources.Limits {
		if name == "cpu" || name == "nvidia.com/gpu" || name == "google.com/tpu" || strings.HasPrefix(string(name), "nvidia.com/mig-") {
			return nil
		}
	}
	return fmt.Errorf("container %q has limits of an unknown device: %v", c.Name, c.Resources.Limits)
}

// train creates a job of a runtime with the annotations on its pods, which the SDK's option RuntimePatch can give. It sends
// no managedBy, no suspend, and of the runtime the name only. It returns what the hub has answered, which the SDK does not
// read.
func (s sdk) train(ctx context.Context, name, runtime string, nodes int32, annotations map[string]string) (*trainer.TrainJob, error) {
	if _, err := s.getRuntime(ctx, runtime); err != nil {
		return nil, err
	}
	type object = map[string]any
	job := object{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": object{"name": name},
		"spec": object{
			"runtimeRef": object{"name": runtime},
			"trainer": object{
				"numNodes": nodes, "command": []string{"bash", "-c", "torchrun train.py"},
				"resourcesPerNode": object{"requests": object{"cpu": "4"}, "limits": object{"cpu": "4"}},
			},
			"runtimePatches": []object{{
				"manager": "trainer.kubeflow.org/kubeflow-sdk",
				"trainingRuntimeSpec": object{"template": object{"spec": object{"replicatedJobs": []object{{
					"name": "node", "template": object{"spec": object{"template": object{"metadata": object{"annotations": annotations}}}},
				}}}}},
			}},
		},
	}
	var created trainer.TrainJob
	return &created, s.call(ctx, http.MethodPost, s.trainerPath("trainjobs"), nil, job, &created)
}

// sdkStep is a pod of a job.
type sdkStep struct {
	name, pod string
	phase     corev1.PodPhase
}

// sdkJob is what the SDK has of a job.
type sdkJob struct {
	name, status string
	nodes        int32
	steps        []sdkStep
}

// step returns the step of a name, as get_job_logs looks for it: one whose pod is not Pending.
func (j sdkJob) step(name string) (sdkStep, bool) {
	at := slices.IndexFunc(j.steps, func(s sdkStep) bool { return s.name == name && s.phase != corev1.PodPending })
	if at < 0 {
		return sdkStep{}, false
	}
	return j.steps[at], true
}

func (s sdk) listJobs(ctx context.Context) (found []sdkJob, err error) {
	var jobs trainer.TrainJobList
	if err := s.call(ctx, http.MethodGet, s.trainerPath("trainjobs"), nil, nil, &jobs); err != nil {
		return nil, err
	}
	for i := range jobs.Items {
		one, err := s.readJob(ctx, &jobs.Items[i])
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	return found, nil
}

func (s sdk) getJob(ctx context.Context, name string) (sdkJob, error) {
	var job trainer.TrainJob
	if err := s.call(ctx, http.MethodGet, s.trainerPath("trainjobs/"+name), nil, nil, &job); err != nil {
		return sdkJob{}, err
	}
	return s.readJob(ctx, &job)
}

// stepsOf is the label selector of the SDK.
const stepsOf = "jobset.sigs.k8s.io/jobset-name=%s,jobset.sigs.k8s.io/replicatedjob-name in (dataset-initializer, model-initializer, launcher, node)"

func (s sdk) readJob(ctx context.Context, job *trainer.TrainJob) (sdkJob, error) {
	if job.Name == "" || job.Namespace == "" || job.CreationTimestamp.IsZero() {
		return sdkJob{}, fmt.Errorf("TrainJob %q is invalid", job.Name)
	}
	runtime, err := s.getRuntime(ctx, job.Spec.RuntimeRef.Name)
	if err != nil {
		return sdkJob{}, err
	}
	read := sdkJob{name: job.Name, nodes: runtime.nodes, status: "Created"}
	if job.Spec.Trainer != nil && job.Spec.Trainer.NumNodes != nil {
		read.nodes = *job.Spec.Trainer.NumNodes
	}
	var pods corev1.PodList
	query := url.Values{"labelSelector": {fmt.Sprintf(stepsOf, job.Name)}}
	if err := s.call(ctx, http.MethodGet, s.corePath("pods"), query, nil, &pods); err != nil {
		return sdkJob{}, err
	}
	for i := range pods.Items {
		step, err := readStep(&pods.Items[i], runtime)
		if err != nil {
			return sdkJob{}, err
		}
		read.steps = append(read.steps, step)
	}
	read.status = statusOf(job, read)
	return read, nil
}

func readStep(pod *corev1.Pod, runtime sdkRuntime) (sdkStep, error) {
	if pod.Name == "" || len(pod.Labels) == 0 {
		return sdkStep{}, fmt.Errorf("pod %q is invalid", pod.Name)
	}
	of := pod.Labels["jobset.sigs.k8s.io/replicatedjob-name"]
	name, container := of, of
	if of == "launcher" || of == "node" {
		index, err := strconv.Atoi(pod.Labels["batch.kubernetes.io/job-completion-index"])
		if err != nil {
			return sdkStep{}, fmt.Errorf("pod %q has no index: %w", pod.Name, err)
		}
		if runtime.mpi && of != "launcher" {
			index++
		}
		name, container = fmt.Sprintf("node-%d", index), "node"
	}
	at := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == container })
	if at < 0 {
		return sdkStep{}, fmt.Errorf("pod %q has no container %q", pod.Name, container)
	}
	return sdkStep{name, pod.Name, pod.Status.Phase}, checkDevices(pod.Spec.Containers[at])
}

// statusOf is Running only without any condition.
func statusOf(job *trainer.TrainJob, read sdkJob) string {
	for _, c := range job.Status.Conditions {
		if (c.Type == trainer.TrainJobComplete || c.Type == trainer.TrainJobFailed) && c.Status == metav1.ConditionTrue {
			return c.Type
		}
	}
	running := int32(0)
	for _, step := range read.steps {
		if strings.HasPrefix(step.name, "node") && (step.phase == corev1.PodRunning || step.phase == corev1.PodSucceeded) {
			running++
		}
	}
	if len(job.Status.Conditions) == 0 && running == read.nodes {
		return "Running"
	}
	return read.status
}

// getJobLogs returns the lines of a step's log, none if the step has no pod that has begun. With follow it calls each
// with them as they come.
func (s sdk) getJobLogs(ctx context.Context, name, step string, follow bool, each func(line string)) error {
	job, err := s.getJob(ctx, name)
	if err != nil {
		return err
	}
	of, has := job.step(step)
	if !has {
		return nil
	}
	query := url.Values{"container": {strings.TrimRight(strings.TrimRight(step, "0123456789"), "-")}}
	if follow {
		query.Set("follow", "True") // So the Python client writes it.
	}
	path := s.corePath("pods/" + of.pod + "/log")
	res, err := ask(ctx, s.user, http.MethodGet, path, query, nil)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return &codeError{res.StatusCode, path}
	}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		each(lines.Text())
	}
	return lines.Err()
}

// sdkEvent is what the SDK has of an Event.
type sdkEvent struct{ kind, name, reason string }

// getJobEvents returns the Events that the SDK shows, in the order of their first times. It drops those without one.
func (s sdk) getJobEvents(ctx context.Context, name string) (found []sdkEvent, err error) {
	job, err := s.getJob(ctx, name)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{name: true}
	for _, step := range job.steps {
		names[step.name], names[step.pod] = true, true
	}
	var events corev1.EventList
	if err := s.call(ctx, http.MethodGet, s.corePath("events"), nil, nil, &events); err != nil {
		return nil, err
	}
	slices.SortStableFunc(events.Items, func(a, b corev1.Event) int { return a.FirstTimestamp.Compare(b.FirstTimestamp.Time) })
	for _, event := range events.Items {
		about := event.InvolvedObject
		if event.FirstTimestamp.IsZero() || !names[about.Name] || !slices.Contains([]string{"TrainJob", "JobSet", "Job", "Pod"}, about.Kind) {
			continue
		}
		found = append(found, sdkEvent{about.Kind, about.Name, event.Reason})
	}
	return found, nil
}

func (s sdk) deleteJob(ctx context.Context, name string) error {
	return s.call(ctx, http.MethodDelete, s.trainerPath("trainjobs/"+name), nil, nil, nil)
}
