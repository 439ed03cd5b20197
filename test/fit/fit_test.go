// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/capacity/devices"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

var (
	cases = flag.Int("cases", 50, "how many cases are drawn")
	seed  = flag.Uint64("seed", uint64(time.Now().UnixNano()), "the seed of the cases")

	server  *clusters.Cluster
	cluster client.Client
	// kubernetes is the version of the API server.
	kubernetes string
	// ruleVersion is the version of DeviceTaintRules that the scheduler reads. Empty: none.
	ruleVersion string
)

var eventually = check.Within(4*time.Minute, 100*time.Millisecond)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	options := clusters.Options{
		Name: "worker", ControllerManager: true, Scheduler: true,
		// Nobody says that the nodes live, and nobody has to.
		ControllerManagerArgs: []string{"--controllers=serviceaccount-controller,resourceclaim-controller,root-ca-certificate-publisher-controller"},
		APIServerArgs:         []string{"--disable-admission-plugins=TaintNodesByCondition", "--enable-admission-plugins=ExtendedResourceToleration"},
	}
	if release := cmp.Or(os.Getenv("TRAINYARD_RELEASE"), clusters.DefaultRelease); release == "1.36" { // Later ones need no help.
		const rules = "--feature-gates=DRADeviceTaintRules=true"
		options.APIServerArgs = append(options.APIServerArgs, "--runtime-config=resource.k8s.io/v1beta2=true", rules)
		options.SchedulerArgs = []string{rules}
		ruleVersion = "v1beta2"
	}
	server, err = clusters.Start(context.Background(), options)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	if kubernetes, err = server.Version(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if capacity.MayServeTaintRules(kubernetes, "v1") {
		ruleVersion = "v1"
	}
	if cluster, err = client.New(server.Config, client.Options{Scheme: scheme.Scheme}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// TestScheduler compares the fit of random gangs with what the scheduler does.
func TestScheduler(t *testing.T) {
	t.Logf("go test ./test/fit -cases %d -seed %d, with Kubernetes %s", *cases, *seed, kubernetes)
	var fits, lacks, unbound, unknown, fitting, lacking atomic.Int64
	t.Run("Cases", func(t *testing.T) {
		for i := range *cases {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				s := draw(rand.New(rand.NewPCG(*seed, uint64(i))), fmt.Sprint("case-", i))
				s.create(t)
				for j := range s.gangs {
					shortfall, hasKind, isKnown := s.fit(t, &s.gangs[j])
					switch {
					case hasKind && isKnown && shortfall == nil:
						fitting.Add(1)
					case hasKind && shortfall != nil && strings.Contains(shortfall.Message, "of request gpus"):
						lacking.Add(1)
					}
					switch bound := s.submit(t, j, shortfall == nil); {
					case shortfall == nil && !isKnown:
						unknown.Add(1)
					case shortfall == nil && bound < s.gangs[j].count:
						unbound.Add(1)
						t.Logf("gang %d fits, and %d of %d pods are bound", j, bound, s.gangs[j].count)
					case shortfall == nil:
						fits.Add(1)
					case bound == s.gangs[j].count:
						t.Errorf("gang %d: %s, but all of its %d pods are bound", j, shortfall.Message, bound)
					default:
						lacks.Add(1)
					}
				}
			})
		}
	})
	t.Logf("%d gangs fit, %d lack something, %d of those that fit were not bound, of %d nobody knew", fits.Load(), lacks.Load(),
		unbound.Load(), unknown.Load())
	t.Logf("%d gangs fit of those whose claims are counted, %d lack such claims", fitting.Load(), lacking.Load())
	if all := fits.Load() + unbound.Load(); unbound.Load()*50 > all {
		t.Errorf("%d of %d gangs that fit were not bound, more than one in fifty", unbound.Load(), all)
	}
	if *cases >= 50 && (fits.Load() == 0 || lacks.Load() == 0) || *cases >= 500 && (fitting.Load() == 0 || lacking.Load() == 0) {
		t.Error("the cases prove nothing")
	}
}

// TestRuleWithoutSelector: what a DeviceTaintRule without a selector taints depends on the release.
func TestRuleWithoutSelector(t *testing.T) {
	if ruleVersion == "" {
		t.Skipf("the scheduler of Kubernetes %s knows no DeviceTaintRules", kubernetes)
	}
	s := &scene{name: "no-selector"}
	s.nodes = []*corev1.Node{{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Labels: map[string]string{labelCase: s.name}},
		Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("8"), "pods": resource.MustParse("10")},
		},
	}}
	s.objects = []client.Object{s.rule(nil, "NoSchedule"), s.class(), &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: s.name + ".example.com", NodeName: &s.name, Devices: []resourceapi.Device{{Name: "d0"}},
			Pool: resourceapi.ResourcePool{Name: s.name, Generation: 1, ResourceSliceCount: 1},
		},
	}}
	gpu := corev1.ResourceList{s.gpu(): resource.MustParse("1")}
	s.gangs = []gang{{count: 1, pod: corev1.PodSpec{
		NodeSelector: map[string]string{labelCase: s.name}, TerminationGracePeriodSeconds: new(int64),
		Containers: []corev1.Container{{
			Name: "main", Image: "registry.example.com/main", Resources: corev1.ResourceRequirements{Requests: gpu, Limits: gpu},
		}},
	}}}
	s.create(t)
	shortfall, _, _ := s.fit(t, &s.gangs[0])
	bound := s.submit(t, 0, shortfall == nil)
	check.Equal(t, shortfall == nil, bound == 1, "our fit and the scheduler's: %v", shortfall)
}

// create makes what the case has before its pods.
func (s *scene) create(t *testing.T) {
	t.Helper()
	check.Must(t, cluster.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}))
	for _, n := range s.nodes {
		status := n.Status
		check.Must(t, cluster.Create(t.Context(), n))
		n.Status = status
		check.Must(t, cluster.Status().Update(t.Context(), n))
	}
	for _, object := range s.objects {
		check.Must(t, cluster.Create(t.Context(), object))
	}
	t.Cleanup(func() { s.delete(t) })
	eventually(t, "the service account of the pods", func(g gomega.Gomega) {
		g.Expect(cluster.Get(t.Context(), types.NamespacedName{Namespace: s.name, Name: "default"}, &corev1.ServiceAccount{})).To(gomega.Succeed())
	})
}

// delete deletes what makes work for the scheduler.
func (s *scene) delete(t *testing.T) {
	t.Helper()
	for _, kind := range []client.Object{&corev1.Pod{}, &resourceapi.ResourceClaim{}} {
		check.Must(t, cluster.DeleteAllOf(context.Background(), kind, client.InNamespace(s.name), client.GracePeriodSeconds(0)))
	}
	for _, n := range s.nodes {
		check.Must(t, cluster.Delete(context.Background(), n))
	}
	for _, object := range s.objects {
		check.Must(t, cluster.Delete(context.Background(), object))
	}
}

// fit says what a gang lacks, as a manager says it that has asked what its pods become. It is not known if the gang has a
// claim that a node cannot count. hasKind says whether it has a claim about which numbers of devices do not decide.
func (s *scene) fit(t *testing.T, g *gang) (shortfall *dispatch.Shortfall, hasKind, isKnown bool) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "question"}, Spec: g.pod}
	check.Must(t, cluster.Create(t.Context(), pod, client.DryRunAll))
	podSet, err := demand.OfPods("node", int32(g.count), &pod.Spec)
	check.Must(t, err)
	for _, claim := range pod.Spec.ResourceClaims {
		template := &resourceapi.ResourceClaimTemplate{}
		check.Must(t, cluster.Get(t.Context(), types.NamespacedName{Namespace: s.name, Name: *claim.ResourceClaimTemplateName}, template))
		demand.AddDevices(&podSet, devices.Claimed(&template.Spec.Spec))
	}
	nodes, uncounted := s.free(t)
	for name := range podSet.Requests {
		hasKind = hasKind || v1alpha1.IsDeviceClaim(name)
	}
	isKnown = !hasKind || !slices.ContainsFunc(uncounted, func(text string) bool { return strings.HasPrefix(text, "claims are not counted on ") })
	return nodes.Fit([]v1alpha1.PodSet{podSet}), hasKind, isKnown
}

// free is what the nodes of the case have free, as a manager counts it, and what cannot be counted.
func (s *scene) free(t *testing.T) (nodes *dispatch.Nodes, uncounted []string) {
	t.Helper()
	tally := capacity.NewTally()
	tally.SetKubernetes(kubernetes)
	for _, kind := range []struct {
		list    client.ObjectList
		options []client.ListOption
	}{
		{&corev1.NodeList{}, []client.ListOption{client.MatchingLabels{labelCase: s.name}}},
		{&corev1.PodList{}, []client.ListOption{client.InNamespace(s.name)}},
		{&resourceapi.ResourceClaimList{}, []client.ListOption{client.InNamespace(s.name)}},
		{&resourceapi.ResourceSliceList{}, nil},
		{&resourceapi.DeviceClassList{}, nil},
		{&resourceapi.ResourceClaimTemplateList{}, []client.ListOption{client.InNamespace(s.name)}},
	} {
		check.Must(t, cluster.List(t.Context(), kind.list, kind.options...))
		switch list := kind.list.(type) {
		case *corev1.NodeList:
			for i := range list.Items {
				tally.NodeHandler().OnAdd(&list.Items[i], false)
			}
		case *corev1.PodList:
			for i := range list.Items {
				tally.PodHandler().OnAdd(&list.Items[i], false)
			}
		case *resourceapi.ResourceClaimList:
			for i := range list.Items {
				tally.DeviceHandler().OnAdd(&list.Items[i], false)
			}
		case *resourceapi.ResourceClaimTemplateList:
			for i := range list.Items {
				tally.DeviceHandler().OnAdd(&list.Items[i], false)
			}
		case *resourceapi.ResourceSliceList:
			for i := range list.Items {
				if list.Items[i].Spec.Driver == s.name+".example.com" {
					tally.DeviceHandler().OnAdd(&list.Items[i], false)
				}
			}
		case *resourceapi.DeviceClassList:
			for i := range list.Items {
				if list.Items[i].Name == s.name {
					tally.DeviceHandler().OnAdd(&list.Items[i], false)
				}
			}
		}
	}
	if ruleVersion != "" {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(capacity.NewTaintRule(ruleVersion).GroupVersionKind())
		check.Must(t, cluster.List(t.Context(), list))
		for i := range list.Items {
			tally.DeviceHandler().OnAdd(&list.Items[i], false)
		}
	}
	var groups []dispatch.NodeGroup
	for _, n := range tally.Snapshot().Nodes {
		free := dispatch.FreeOf(dispatch.Resources(n.Allocatable), dispatch.Resources(n.Used))
		groups = append(groups, dispatch.NodeGroup{Labels: n.Labels, Taints: n.Taints, Free: free, Count: n.Count})
	}
	return dispatch.NewNodes(groups), tally.Uncounted()
}

// submit creates the pods of a gang, and returns how many of them the scheduler binds. A gang that is to fit has time to
// be bound.
func (s *scene) submit(t *testing.T, number int, isToFit bool) (bound int) {
	t.Helper()
	gangLabel := map[string]string{"gang": fmt.Sprint(number)}
	for i := range s.gangs[number].count {
		check.Must(t, cluster.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: fmt.Sprint("gang-", number, "-", i), Labels: gangLabel},
			Spec:       s.gangs[number].pod,
		}))
	}
	patience := time.Now().Add(15 * time.Second)
	eventually(t, "the scheduler's answer to each pod", func(g gomega.Gomega) {
		var pods corev1.PodList
		g.Expect(cluster.List(t.Context(), &pods, client.InNamespace(s.name), client.MatchingLabels(gangLabel))).To(gomega.Succeed())
		bound = 0
		for i := range pods.Items {
			if pods.Items[i].Spec.NodeName != "" {
				bound++
				continue
			}
			g.Expect(pods.Items[i].Status.Conditions).To(gomega.ContainElement(gomega.HaveField("Type", corev1.PodScheduled)))
		}
		g.Expect(!isToFit || bound == len(pods.Items) || time.Now().After(patience)).To(gomega.BeTrue())
	})
	return bound
}
