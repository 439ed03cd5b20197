// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

func newCapacityReport(renewed int64, cpus int64) *v1alpha1.CapacityReport {
	return &v1alpha1.CapacityReport{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.CapacityReportName}, RenewTime: metav1.NewMicroTime(time.Unix(renewed, 0)),
		Resources: []corev1.ResourceName{"cpu"},
		NodeGroups: []v1alpha1.ReportedNodeGroup{{
			Schedulable: true, Allocatable: v1alpha1.Amounts{cpus}, Rows: []v1alpha1.ReportedNodes{{Nodes: 3, Used: v1alpha1.Amounts{1}}},
		}},
	}
}

// TestReported follows one report through its states. Its times are years off, because they must not count.
func TestReported(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	woken, told := 0, 0
	r := NewReported(clock, func() { woken++ })
	r.Subscribe(func() { told++ })
	connected, listed, code := clock.Now(), false, 0
	other := newCapacityReport(5, 99)
	other.Name = "other"
	senseless := newCapacityReport(6, 16)
	senseless.Resources = nil
	abridged := newCapacityReport(8, 16)
	abridged.Abridged = []v1alpha1.Abridgement{v1alpha1.AbridgedGangs}
	steps := []struct {
		name        string
		event       func()
		state       State
		says        string
		told, woken bool
	}{
		{"nothing is known", func() {}, Pending, "being read", false, false},
		{"the API is missing", func() { code = http.StatusNotFound }, ReportMissing, "install", false, false},
		{"it is forbidden", func() { code = http.StatusForbidden }, ReportMissing, "grant", false, false},
		{"there is none", func() { code, listed = 0, true }, ReportMissing, "--capacity-report", false, false},
		{"it comes", func() { r.set(newCapacityReport(1, 8)) }, Known, "", true, true},
		{"the API server fails", func() { code = http.StatusInternalServerError }, Known, "", false, false},
		{"time passes", func() { clock.Step(reportPatience - time.Second) }, Known, "", false, false},
		{"it is listed again", func() { r.set(newCapacityReport(1, 8)) }, Known, "", false, false},
		{"more time passes", func() { clock.Step(time.Second) }, ReportStale, "not renewed", false, false},
		{"the connection was away", func() { connected = clock.Now() }, Known, "", false, false},
		{"time passes again", func() { clock.Step(reportPatience) }, ReportStale, "not renewed", false, false},
		{"it is renewed", func() { r.set(newCapacityReport(2, 8)) }, Known, "", false, true},
		{"it changes", func() { r.set(newCapacityReport(3, 16)) }, Known, "", true, false},
		{"the worker's clock is set back", func() { clock.Step(reportPatience); r.set(newCapacityReport(0, 16)) }, Known, "", false, false},
		{"another one comes", func() { r.set(other) }, Known, "", false, false},
		{"it makes no sense", func() { r.set(senseless) }, ReportMissing, "cannot be read", false, true},
		{"it makes sense again", func() { r.set(newCapacityReport(7, 16)) }, Known, "", true, true},
		{"it is too large", func() { r.set(abridged) }, Known, "Gangs", true, true},
		{"another one goes", func() { r.remove("other") }, Known, "Gangs", false, false},
		{"it goes", func() { r.remove(v1alpha1.CapacityReportName) }, ReportMissing, "--capacity-report", false, true},
		{"it is there again", func() { r.set(newCapacityReport(9, 16)) }, Known, "", true, true},
	}
	for _, step := range steps {
		before, toldBefore, wokenBefore := r.Snapshot(), told, woken
		step.event()
		if got := r.Snapshot() != before; got != step.told || told-toldBefore > 1 || (told > toldBefore) != step.told {
			t.Errorf("%s: another snapshot %t, told %d times, want %t", step.name, got, told-toldBefore, step.told)
		}
		if (woken > wokenBefore) != step.woken {
			t.Errorf("%s: woken %t, want %t", step.name, woken > wokenBefore, step.woken)
		}
		state, message := r.State(connected, listed, code)
		if state != step.state || !strings.Contains(message, step.says) || (step.says == "") != (message == "") {
			t.Errorf("%s: state %d: %s\nwant %d and in it: %s", step.name, state, message, step.state, step.says)
		}
	}
	if nodes := r.Snapshot().Nodes; len(nodes) != 1 || nodes[0].Count != 3 || nodes[0].Allocatable["cpu"] != 16 {
		t.Errorf("nodes: %+v", nodes)
	}
}

// TestAmountOf checks that an amount that is too large for an int64 is not read as 0 or as another small number.
func TestAmountOf(t *testing.T) {
	for text, want := range map[string]int64{
		"2": 2000, "1500u": 2, "9000000000000000000": largestAmount, "9223372036854775807": largestAmount, "-9000000000000000000": 0,
	} {
		if got := amountOf(corev1.ResourceCPU, resource.MustParse(text)); got != want {
			t.Errorf("%s cores are read as %d thousandths, want %d", text, got, want)
		}
	}
	if got := amountOf(corev1.ResourceMemory, resource.MustParse("8Ei")); got != largestAmount {
		t.Errorf("8Ei of memory are read as %d", got)
	}
}

// TestEffectiveQuotas: what an orchestrator of Kueue 0.20 gives a ClusterQueue or a Cohort counts instead of its spec.
func TestEffectiveQuotas(t *testing.T) {
	const spec = `
spec: {resourceGroups: [{coveredResources: [cpu], flavors: [{name: a, resources: [{name: cpu, nominalQuota: "9"}]}]}]}
`
	group := func(amount int64) []v1alpha1.KueueResourceGroup {
		return []v1alpha1.KueueResourceGroup{{
			Resources: []corev1.ResourceName{"cpu"},
			Flavors:   []v1alpha1.KueueFlavorQuotas{{Name: "a", Quotas: []v1alpha1.KueueResourceQuota{{Resource: "cpu", Nominal: amount}}}},
		}}
	}
	for name, test := range map[string]struct {
		reason, status string
		want           []v1alpha1.KueueResourceGroup
	}{
		"None": {reason: "most clusters have no orchestrator", status: "status: {conditions: []}", want: group(9000)},
		"Some": {
			reason: "the cluster has fewer nodes now",
			status: `status: {effectiveQuotas: {resourceGroups: [{coveredResources: [cpu], flavors: [{name: a, resources: [{name: cpu, nominalQuota: "4"}]}]}]}}`,
			want:   group(4000),
		},
		"Empty": {reason: "an empty list means that there is no quota", status: "status: {effectiveQuotas: {resourceGroups: []}}"},
	} {
		for _, kind := range []string{"ClusterQueue", "Cohort"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				object := &unstructured.Unstructured{}
				must(t, yaml.Unmarshal([]byte("apiVersion: kueue.x-k8s.io/v1beta2\nkind: "+kind+spec+test.status), &object.Object))
				kept, err := kueues.Strip(object)
				must(t, err)
				got := cohortOf(kept.(*unstructured.Unstructured)).Groups
				if kind == "ClusterQueue" {
					got = clusterQueueOf(kept.(*unstructured.Unstructured)).Groups
				}
				differ(t, test.want, got, test.reason)
			})
		}
	}
}
