// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2" //nolint:depguard // Only for the type of an argument of Toleration.ToleratesTaint; nothing is logged.

	"github.com/trainyard/trainyard/api/hostports"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// gang is a job's demand, compiled once for all workers. One call uses it, and it holds the scratch space of that call.
type gang struct {
	podSets  []v1alpha1.PodSet     // Not compiled. Quota is for whole PodSets.
	phases   []phase               // They run one after another.
	names    []corev1.ResourceName // Sorted. What the pods request, their host ports, and "pods".
	total    []int64               // Per name, the largest amount that a phase needs.
	extended []bool                // Per name, whether it is an extended resource.
	probe    corev1.Node           // Scratch: what node affinity is matched against.
	cols     []int                 // Scratch: the columns of names in the nodes that are bound, or what stands for none.
	place    placement             // Scratch.
	levels   [maxLevels]level      // Scratch.
	nodes    []nodesFor            // Scratch.

	hostPorts []corev1.ResourceName // Sorted. The names that are host ports.
}

// phase is a set of pods that run at the same time.
type phase struct {
	pods  []pods
	sum   []int64 // What they need together, per name of the gang.
	upper pods    // The same number of pods, each with the largest requests.
}

// pods are the pods of one or more PodSets that are alike.
type pods struct {
	podSets      []string // Names, sorted.
	need         int64    // At least 1.
	takesPorts   bool     // Whether each of them takes host ports.
	requests     []request
	nodeSelector []label
	affinity     *corev1.NodeSelector
	affinityTerm *nodeaffinity.LazyErrorNodeSelector // affinity, parsed.
	tolerations  []corev1.Toleration
	admitted     map[shape][]bool // Scratch: earlier answers about classes of nodes.
	shape        shape            // Scratch: the shape of the last question,
	admits       []bool           // and its answer.

	bound []demand // Scratch: requests in the columns of the nodes that are bound.
}

// request is an amount of gang.names[name] for one pod, more than 0.
type request struct {
	name   int
	amount int64
}

// demand is an amount of a column of Nodes for one pod.
type demand struct {
	name   int // In gang.names.
	col    int // noColumn: no node has it.
	amount int64
}

type label struct{ key, value string }

// PhaseOf is the phase in which a PodSet runs: 0 runs before 1.
func PhaseOf(set *v1alpha1.PodSet) int {
	if isInitializer(set.Role) && !set.Concurrent {
		return 0
	}
	return 1
}

// isInitializer says whether pods of a role usually run before the others. Only this function knows what a role means.
func isInitializer(role v1alpha1.PodSetRole) bool {
	return strings.HasSuffix(string(role), "-initializer")
}

func newGang(podSets []v1alpha1.PodSet) *gang {
	g := &gang{podSets: podSets}
	names := map[corev1.ResourceName]struct{}{corev1.ResourcePods: {}}
	for i := range podSets {
		for name := range podSets[i].Requests {
			names[name] = struct{}{}
		}
		for name := range hostports.Amounts(podSets[i].HostPorts) {
			names[name] = struct{}{}
		}
	}
	g.names = slices.Sorted(maps.Keys(names))
	g.extended = make([]bool, len(g.names))
	for i, name := range g.names {
		g.extended[i] = IsExtended(name)
		if hostports.Is(name) {
			g.hostPorts = append(g.hostPorts, name)
		}
	}
	g.phases = make([]phase, 2)
	for i := range podSets {
		if set := &podSets[i]; set.Count > 0 {
			g.phases[PhaseOf(set)].merge(g.compile(set))
		}
	}
	g.phases = slices.DeleteFunc(g.phases, func(ph phase) bool { return len(ph.pods) == 0 })
	g.total = make([]int64, len(g.names))
	for i := range g.phases {
		g.phases[i].finish(len(g.names))
		for name, amount := range g.phases[i].sum {
			g.total[name] = max(g.total[name], amount)
		}
	}
	return g
}

func (g *gang) compile(set *v1alpha1.PodSet) pods {
	p := pods{
		podSets: []string{set.Name}, need: int64(set.Count),
		affinity: set.NodeAffinity, tolerations: set.Tolerations, takesPorts: len(set.HostPorts) > 0,
	}
	amounts := FromList(set.Requests)
	amounts[corev1.ResourcePods] = 1
	maps.Copy(amounts, hostports.Amounts(set.HostPorts))
	for name, amount := range amounts {
		if amount > 0 {
			at, _ := slices.BinarySearch(g.names, name)
			p.requests = append(p.requests, request{name: at, amount: amount})
		}
	}
	// Extended resources first: they are what most nodes lack.
	slices.SortFunc(p.requests, func(a, b request) int {
		return cmp.Or(cmp.Compare(g.rank(a), g.rank(b)), cmp.Compare(a.name, b.name))
	})
	for _, key := range slices.Sorted(maps.Keys(set.NodeSelector)) {
		p.nodeSelector = append(p.nodeSelector, label{key, set.NodeSelector[key]})
	}
	if p.affinity != nil {
		p.affinityTerm = nodeaffinity.NewLazyErrorNodeSelector(p.affinity)
	}
	return p
}

func (g *gang) rank(r request) int {
	if g.extended[r.name] {
		return 0
	}
	return 1
}

// merge adds pods to a phase. It merges pods of equal shape, so that fits is exact for them.
func (ph *phase) merge(p pods) {
	for i := range ph.pods {
		q := &ph.pods[i]
		if slices.Equal(q.requests, p.requests) && slices.Equal(q.nodeSelector, p.nodeSelector) &&
			reflect.DeepEqual(q.affinity, p.affinity) && reflect.DeepEqual(q.tolerations, p.tolerations) {
			q.podSets = append(q.podSets, p.podSets...)
			q.need += p.need
			return
		}
	}
	ph.pods = append(ph.pods, p)
}

// finish sorts the pods, so that the order of the PodSets does not matter, and adds up their requests.
func (ph *phase) finish(names int) {
	for i := range ph.pods {
		slices.Sort(ph.pods[i].podSets)
	}
	slices.SortFunc(ph.pods, func(a, b pods) int { return slices.Compare(a.podSets, b.podSets) })
	ph.sum = make([]int64, names)
	largest := make([]int64, names)
	for i := range ph.pods {
		ph.upper.need += ph.pods[i].need
		for _, r := range ph.pods[i].requests {
			ph.sum[r.name] = addUpTo(ph.sum[r.name], mulUpTo(r.amount, ph.pods[i].need))
			largest[r.name] = max(largest[r.name], r.amount)
		}
	}
	for name, amount := range largest {
		if amount > 0 {
			ph.upper.requests = append(ph.upper.requests, request{name: name, amount: amount})
		}
	}
}

// bind looks up the columns of the pods' requests. It must run before any code that reads pods.bound.
func (g *gang) bind(n *Nodes) {
	g.cols = n.columnsOf(g.names, g.cols[:0])
	for i := range g.phases {
		ph := &g.phases[i]
		for j := range ph.pods {
			g.bindPods(&ph.pods[j])
		}
		if len(ph.pods) > 1 {
			g.bindPods(&ph.upper)
		}
	}
}

func (g *gang) bindPods(p *pods) {
	p.bound = p.bound[:0]
	for _, r := range p.requests {
		// If no node lists "pods" or a claim, the nodes take any number. Scores do not look at host ports: see withPorts.
		name, col := g.names[r.name], g.cols[r.name]
		if col >= 0 || col == noColumn && name != corev1.ResourcePods && !hostports.Is(name) && !v1alpha1.IsDeviceClaim(name) {
			p.bound = append(p.bound, demand{name: r.name, col: col, amount: r.amount})
		}
	}
}

// selects says whether the pods' node selector matches nodes of the class.
func (p *pods) selects(c *class) bool {
	for _, l := range p.nodeSelector {
		if value, has := c.labels[l.key]; !has || value != l.value {
			return false
		}
	}
	return true
}

// matchesAffinity says whether the required node affinity matches nodes of the class. It fails if it cannot be parsed.
func (g *gang) matchesAffinity(p *pods, c *class) (bool, error) {
	if p.affinityTerm == nil {
		return true, nil
	}
	// Without a name, the node would match no term that selects nodes by name.
	g.probe.Name = "*"
	g.probe.Labels = c.labels
	return p.affinityTerm.Match(&g.probe)
}

// repels returns the first taint of the class that the pods do not tolerate, or nil.
func (p *pods) repels(c *class) *corev1.Taint {
	for i := range c.taints {
		taint := &c.taints[i]
		if !p.tolerates(taint) {
			return taint
		}
	}
	return nil
}

// tolerates says whether the pods tolerate a taint. Like a scheduler without their feature gate, it ignores Lt and Gt.
func (p *pods) tolerates(taint *corev1.Taint) bool {
	for i := range p.tolerations {
		if p.tolerations[i].ToleratesTaint(klog.Logger{}, taint, false) {
			return true
		}
	}
	return false
}

// maxShapes is the number of node shapes for which admits caches its answer.
const maxShapes = 64

// admits says for each class of nodes whether it takes the pods if it has room, computed once for each shape of nodes.
func (g *gang) admits(n *Nodes, p *pods) []bool {
	if p.admits != nil && p.shape == n.shape && len(p.admits) == len(n.classes) {
		return p.admits
	}
	p.shape = n.shape
	if known, ok := p.admitted[n.shape]; ok && len(known) == len(n.classes) {
		p.admits = known
		return known
	}
	admits := make([]bool, len(n.classes))
	p.admits = admits
	if p.admitted == nil {
		p.admitted = map[shape][]bool{}
	}
	if len(p.admitted) < maxShapes {
		p.admitted[n.shape] = admits
	}
	for i := range n.classes {
		c := &n.classes[i]
		admits[i] = p.selects(c) && p.repels(c) == nil
		if admits[i] && p.affinityTerm != nil {
			admits[i], _ = g.matchesAffinity(p, c) // The shortfall reports the error.
		}
	}
	return admits
}
