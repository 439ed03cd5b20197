// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// throughGateway and direct are clients of the same pods: of the user through the gateway, and of an admin of the worker.
func throughGateway(b *testing.B, u *yard.User) kubernetes.Interface {
	b.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", u.Kubeconfig)
	check.Must(b, err)
	return unlimited(b, config)
}

func unlimited(b *testing.B, config *rest.Config) kubernetes.Interface {
	b.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	check.Must(b, err)
	return client
}

// benchJob submits a job for a benchmark, and returns its pods.
func benchJob(b *testing.B, job yard.Job, annotations map[string]string) []corev1.Pod {
	b.Helper()
	job.Namespace, job.RunFor = team, clusters.RunForever
	object := job.TrainJob()
	object.Annotations = map[string]string{"trainyard.dev/clusters": "region=" + east}
	patch := object.Spec.RuntimePatches[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template
	for name, value := range annotations {
		patch.Metadata.Annotations[name] = value
	}
	check.Must(b, y.Hub.Create(context.Background(), object))
	b.Cleanup(func() { check.Must(b, y.Hub.Delete(context.Background(), object)) })
	var pods []corev1.Pod
	y.Eventually(b, func(g gomega.Gomega) {
		pods = y.PodsOf(g, east, object)
		g.Expect(pods).NotTo(gomega.BeEmpty())
		for i := range pods {
			g.Expect(pods[i].Status.Phase).To(gomega.Equal(corev1.PodRunning))
		}
	})
	return pods
}

// inTurn returns the median time of several runs, each way in turn.
func inTurn(runs int, ways ...func()) []time.Duration {
	times := make([][]time.Duration, len(ways))
	for range runs {
		for i, way := range ways {
			begun := time.Now()
			way()
			times[i] = append(times[i], time.Since(begun))
		}
	}
	medians := make([]time.Duration, len(ways))
	for i := range times {
		slices.Sort(times[i])
		medians[i] = times[i][len(times[i])/2]
	}
	return medians
}

// BenchmarkLog reads a log of 100 MiB through the gateway and on its worker, and its first byte.
func BenchmarkLog(b *testing.B) {
	pod := benchJob(b, yard.Job{Name: "bench-log"}, map[string]string{clusters.LogSizeAnnotation: "100Mi"})[0]
	gateway, direct := throughGateway(b, viewer), unlimited(b, y.Yard.Workers[east].Config)
	read := func(client kubernetes.Interface, all bool) func() {
		return func() {
			stream, err := client.CoreV1().Pods(team).GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(b.Context())
			check.Must(b, err)
			defer func() { _ = stream.Close() }()
			if !all {
				_, err = stream.Read(make([]byte, 1))
				check.Must(b, err)
				return
			}
			n, err := io.Copy(io.Discard, stream)
			check.Must(b, err)
			if n < 100<<20 {
				b.Fatalf("the log has %d bytes", n)
			}
		}
	}
	whole := inTurn(5, read(direct, true), read(gateway, true))
	b.ReportMetric(whole[0].Seconds()/whole[1].Seconds(), "x-as-fast")
	b.ReportMetric(100/whole[1].Seconds(), "MiB/s")
	first := inTurn(15, read(direct, false), read(gateway, false))
	b.ReportMetric(float64((first[1]-first[0]).Microseconds())/1000, "ms-later-first-byte")
}

// BenchmarkList lists 5,000 pods through the gateway and on their worker.
func BenchmarkList(b *testing.B) {
	made := benchJob(b, yard.Job{Name: "bench-list"}, nil)[0]
	const count = 5000
	admin := unlimited(b, y.Yard.Workers[east].Config)
	check.Must(b, morePods(b, admin, &made, count-1))
	defer func() {
		_ = admin.CoreV1().Pods(team).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "bench=list"})
	}()
	gateway := throughGateway(b, viewer)
	list := func(client kubernetes.Interface) func() {
		return func() {
			pods, err := client.CoreV1().Pods(team).List(b.Context(), metav1.ListOptions{LabelSelector: jobsetv1alpha2.JobSetNameKey + "=bench-list"})
			check.Must(b, err)
			if len(pods.Items) != count {
				b.Fatalf("there are %d pods", len(pods.Items))
			}
		}
	}
	times := inTurn(7, list(admin), list(gateway))
	b.ReportMetric(times[0].Seconds()/times[1].Seconds(), "x-as-fast")
	b.ReportMetric(float64(times[1].Milliseconds()), "ms")
	// kubectl asks for tables.
	table := func(command func() yard.Result) func() {
		return func() {
			if r := command(); strings.Count(r.Out, "\n") != count+1 {
				b.Fatalf("%s", r.Err)
			}
		}
	}
	args := []string{"get", "pods", "-n", team, "-l", jobsetv1alpha2.JobSetNameKey + "=bench-list"}
	times = inTurn(5,
		table(func() yard.Result {
			return yard.ResultOf(y.KubectlCommand(b.Context(), y.Yard.Workers[east].KubeconfigPath, args...))
		}),
		table(func() yard.Result { return viewer.Kubectl(b.Context(), args...) }))
	b.ReportMetric(times[0].Seconds()/times[1].Seconds(), "x-as-fast-kubectl")
}

// morePods makes pods like one, which no scheduler looks at.
func morePods(b *testing.B, admin kubernetes.Interface, like *corev1.Pod, count int) error {
	b.Helper()
	var all sync.WaitGroup
	errs := make(chan error, count)
	for worker := range 16 {
		all.Go(func() {
			for i := worker; i < count; i += 16 {
				pod := like.DeepCopy()
				pod.ObjectMeta = metav1.ObjectMeta{Namespace: like.Namespace, Name: fmt.Sprintf("bench-list-node-0-%d-xxxxx", i+1), Labels: map[string]string{
					"bench": "list", jobsetv1alpha2.JobSetNameKey: like.Labels[jobsetv1alpha2.JobSetNameKey], jobsetv1alpha2.JobSetUIDKey: like.Labels[jobsetv1alpha2.JobSetUIDKey],
				}}
				pod.Spec.NodeName, pod.Spec.SchedulerName = "", "nobody"
				pod.Status = corev1.PodStatus{}
				if _, err := admin.CoreV1().Pods(pod.Namespace).Create(b.Context(), pod, metav1.CreateOptions{}); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// BenchmarkPollers compares the CPU that the manager spends on clients of the gateway with the CPU that the hub's API
// server spends if the same clients ask it: 1,000 poll the pods of a job every two seconds, and 200 follow logs.
func BenchmarkPollers(b *testing.B) {
	const pollers, followers, period, duration = 1000, 200, 2 * time.Second, 20 * time.Second
	pods := benchJob(b, yard.Job{Name: "bench-poll", Nodes: 2}, map[string]string{clusters.LogAnnotation: "begun"})
	manager := y.Managers.PID()
	server := y.Yard.Hub.Process("kube-apiserver").PID()
	var readers []kubernetes.Interface // One user may follow 50 logs.
	for i := range followers / 50 {
		u, err := y.NewUser(b.Context(), team, fmt.Sprintf("reader-%d", i), "view")
		check.Must(b, err)
		readers = append(readers, throughGateway(b, u))
	}
	measure := func(client kubernetes.Interface, pid int, follow bool) (cpu time.Duration, requests int64) {
		ctx, cancel := context.WithTimeout(b.Context(), duration)
		defer cancel()
		var all sync.WaitGroup
		var done atomic.Int64
		begin := cpuOf(b, pid)
		for i := range followers {
			if !follow {
				break
			}
			all.Go(func() {
				stream, err := readers[i/50].CoreV1().Pods(team).GetLogs(pods[i%2].Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
				if err == nil {
					_, _ = io.Copy(io.Discard, stream)
				}
			})
		}
		for i := range pollers {
			all.Go(func() {
				timer := time.NewTimer(period * time.Duration(i) / pollers)
				for {
					select {
					case <-ctx.Done():
						return
					case <-timer.C:
						timer.Reset(period)
					}
					_, err := client.CoreV1().Pods(team).List(ctx, metav1.ListOptions{LabelSelector: jobsetv1alpha2.JobSetNameKey + "=bench-poll"})
					if err == nil {
						done.Add(1)
					}
				}
			})
		}
		all.Wait()
		return cpuOf(b, pid) - begin, done.Load()
	}
	text, err := clientcmd.BuildConfigFromFlags("", viewer.Kubeconfig)
	check.Must(b, err)
	hub := rest.CopyConfig(y.Yard.Hub.Config)
	hub = rest.AnonymousClientConfig(hub)
	hub.BearerToken = text.BearerToken
	ofServer, asked := measure(unlimited(b, hub), server, false)
	ofManager, answered := measure(throughGateway(b, viewer), manager, true)
	b.ReportMetric(float64(asked)/duration.Seconds(), "direct/s")
	b.ReportMetric(float64(answered)/duration.Seconds(), "through/s")
	b.ReportMetric(float64(ofServer.Microseconds())/float64(asked), "us-server")
	b.ReportMetric(float64(ofManager.Microseconds())/float64(answered), "us-manager")
	b.ReportMetric((ofManager.Seconds()/float64(answered))/(ofServer.Seconds()/float64(asked)), "x-CPU")
}

// cpuOf returns the CPU time of a process.
func cpuOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	check.Must(b, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	ticks := 0
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		check.Must(b, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
