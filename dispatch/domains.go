// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// maxDomains is how many domains of a worker are searched for places for a whole gang. The amounts of all domains are
// looked at before, and exclude most: for pods that are alike they exclude all that do not fit.
const maxDomains = 16

// domainSearch tries the pods of a job that belong together in the domains of workers. One call uses it, and it holds the
// scratch space of that call.
type domainSearch struct {
	topology *Topology
	podSets  []v1alpha1.PodSet
	together *gang              // The pods that belong together.
	within   map[string]*gang   // All pods, in a domain, by its value.
	known    map[shape]valuesOf // Earlier answers of values.
	domains  []domain           // Scratch: the domains of a worker.
	fitting  []domain           // Scratch: those that may fit.
	room     []int64            // Scratch: per domain, the places for pods of one kind,
	nodes    []int64            // and the nodes that could take one.
}

// valuesOf are the values of the label on the nodes of a worker, sorted, and for each class of nodes where its value is,
// or -1.
type valuesOf struct {
	values []string
	at     []int
}

// domain is one domain of a worker for the pods that belong together.
type domain struct {
	value string
	// spare is for how many more pods the domain has places, if lacks is false. lacks says that pods of one kind have no
	// places even alone.
	spare int64
	lacks bool
	// places is how many of the pods have a place, and nodes how many nodes would take a pod if nothing ran there, each
	// counted for each kind of pods. never says that no node would take pods of one kind.
	places, nodes int64
	never         bool
}

func newDomainSearch(topology *Topology, podSets []v1alpha1.PodSet) *domainSearch {
	return &domainSearch{
		topology: topology, podSets: podSets, together: newGang(topology.covered(podSets)),
		within: map[string]*gang{}, known: map[shape]valuesOf{},
	}
}

// gangIn returns the gang in a domain.
func (s *domainSearch) gangIn(value string) *gang {
	g := s.within[value]
	if g == nil {
		g = newGang(s.topology.within(s.podSets, value))
		s.within[value] = g
	}
	return g
}

// best returns the domain that the gang fits most tightly: the one with places for the fewest more pods. Of equal domains
// it is the first by value. avoid is a domain that is left out. It returns "" if no domain takes the gang.
func (s *domainSearch) best(n *Nodes, avoid string) string {
	s.survey(n)
	s.fitting = s.fitting[:0]
	for _, d := range s.domains {
		if !d.lacks && d.value != avoid {
			s.fitting = append(s.fitting, d)
		}
	}
	slices.SortFunc(s.fitting, func(a, b domain) int { return cmp.Or(cmp.Compare(a.spare, b.spare), cmp.Compare(a.value, b.value)) })
	for _, d := range tried(s.fitting) {
		if s.gangIn(d.value).fits(n) {
			return d.value
		}
	}
	return ""
}

// tried are the domains to search: the tightest and, if there are too many, the roomiest too.
func tried(domains []domain) []domain {
	if len(domains) <= maxDomains {
		return domains
	}
	return slices.Concat(domains[:maxDomains/2], domains[len(domains)-maxDomains/2:])
}

// nearest returns the domain with places for the most pods, of those with nodes for each kind of pods if there are such.
// Of equal domains it is the one with the most nodes that could take a pod. It returns "" if no node of any domain could.
func (s *domainSearch) nearest(n *Nodes, avoid string) string {
	s.survey(n)
	var nearest domain
	for _, d := range s.domains {
		if d.nodes > 0 && d.value != avoid && (nearest.value == "" || d.isNearer(&nearest)) {
			nearest = d
		}
	}
	return nearest.value
}

func (d *domain) isNearer(other *domain) bool {
	if d.never != other.never {
		return other.never
	}
	return cmp.Or(cmp.Compare(d.places, other.places), cmp.Compare(d.nodes, other.nodes)) > 0
}

// survey computes what each domain of a worker, in the order of their values, has for the pods that belong together. It
// reads every row once for each kind of pods, however many domains there are.
func (s *domainSearch) survey(n *Nodes) {
	values := s.values(n)
	s.domains, s.room, s.nodes = s.domains[:0], s.room[:0], s.nodes[:0]
	for _, value := range values.values {
		s.domains, s.room, s.nodes = append(s.domains, domain{value: value}), append(s.room, 0), append(s.nodes, 0)
	}
	if len(s.domains) == 0 {
		return
	}
	g := s.together
	n = withPorts(n, g.hostPorts)
	g.bind(n)
	for i := range g.phases {
		for j := range g.phases[i].pods {
			p := &g.phases[i].pods[j]
			clear(s.room)
			clear(s.nodes)
			g.roomIn(n, p, values.at, s.room)
			g.nodesIn(n, p, values.at, s.nodes)
			for at := range s.domains {
				s.domains[at].count(s.room[at], s.nodes[at], p.need)
			}
		}
	}
}

// count adds the places for a kind of pods that needs so many, and the nodes that could take one.
func (d *domain) count(room, nodes, need int64) {
	d.nodes, d.never = addUpTo(d.nodes, nodes), d.never || nodes == 0
	d.places = addUpTo(d.places, min(room, need))
	if d.lacks = d.lacks || room < need; !d.lacks {
		d.spare = addUpTo(d.spare, room-need)
	}
}

// roomIn adds to each domain the places that it has for pods of one kind, if there are no other pods.
func (g *gang) roomIn(n *Nodes, p *pods, domainOf []int, room []int64) {
	if lacksFirst(n.largest, p.bound) {
		return
	}
	admits := g.admits(n, p)
	for r, free := range n.scarcest(p.bound) {
		class := n.class[r]
		if at := domainOf[class]; at >= 0 && admits[class] && (len(p.bound) == 0 || free >= p.bound[0].amount) {
			room[at] = addUpTo(room[at], mulUpTo(perNode(n.row(r), p.bound, p.need), n.counts[r]))
		}
	}
}

// nodesIn adds to each domain the nodes that would take a pod of one kind if nothing ran there.
func (g *gang) nodesIn(n *Nodes, p *pods, domainOf []int, nodes []int64) {
	admits := g.admits(n, p)
	for class := range n.classes {
		at := domainOf[class]
		if at < 0 || !admits[class] || !hasAll(n, class, p.bound) {
			continue
		}
		for r := n.classes[class].first; r < n.classes[class].end; r++ {
			nodes[at] = addUpTo(nodes[at], n.counts[r])
		}
	}
}

// values returns the values of the label on the nodes of a worker. A node with an empty value is in no domain, as a node
// without the label.
func (s *domainSearch) values(n *Nodes) valuesOf {
	if n == nil {
		return valuesOf{}
	}
	if known, ok := s.known[n.shape]; ok && len(known.at) == len(n.classes) {
		return known
	}
	v := valuesOf{at: make([]int, len(n.classes))}
	for i := range n.classes {
		if value := n.classes[i].labels[s.topology.Label]; value != "" {
			v.values = append(v.values, value)
		}
	}
	slices.Sort(v.values)
	v.values = slices.Compact(v.values)
	for i := range n.classes {
		at, found := slices.BinarySearch(v.values, n.classes[i].labels[s.topology.Label])
		if v.at[i] = at; !found {
			v.at[i] = -1
		}
	}
	if len(s.known) < maxShapes {
		s.known[n.shape] = v
	}
	return v
}

// choice is where on a worker a job with a topology would be.
type choice struct {
	fits bool
	// value is the value of the domain that was chosen. Empty: none was.
	value string
	// nearest is the value of the domain that is nearest to taking the job, which requires one and does not fit. It is
	// computed when somebody asks.
	nearest *string
}

// choose says where on nodes of a worker the job would be. Only if its pods fit anywhere there the domains are tried.
func (f *filters) choose(w *Worker, n *Nodes) choice {
	if !f.wholeGang(w).fits(n) {
		return choice{}
	}
	if n.queued().only() { // Nodes do not count, and the job only prefers a domain: see NodesFor.
		return choice{fits: true}
	}
	value := f.search(w).best(n, f.job.avoids(w.Name))
	return choice{fits: value != "" || !f.job.Topology.Required, value: value}
}

// search returns the search for the job as the worker admits it.
func (f *filters) search(w *Worker) *domainSearch {
	at := f.job.demandOn(w.Name)
	if f.searches[at] == nil {
		if f.searches == nil {
			f.searches = map[demandKey]*domainSearch{}
		}
		f.searches[at] = newDomainSearch(f.job.Topology, f.job.PodSetsOn(w.Name))
	}
	return f.searches[at]
}

// nearestDomain is the value of the domain that lacks the least for a job that requires a domain and does not fit.
func (f *filters) nearestDomain(w *Worker) string {
	chosen := f.choices[w.Name]
	if chosen.nearest == nil {
		nearest := f.search(w).nearest(w.Nodes, f.job.avoids(w.Name))
		chosen.nearest = &nearest
	}
	return *chosen.nearest
}

// domainOn is the domain of the worker in which the job would be, or which is nearest to taking the job. nil: none is.
func (f *filters) domainOn(w *Worker) *v1alpha1.Domain {
	switch chosen := f.choices[w.Name]; {
	case chosen == nil:
		return nil
	case chosen.fits || !f.job.Topology.Required:
		return f.job.Topology.domain(chosen.value)
	}
	return f.job.Topology.domain(f.nearestDomain(w))
}

// domainNote says in which domain a job that fits would be, "" for a job without a topology.
func (f *filters) domainNote(w *Worker) string {
	switch chosen := f.choices[w.Name]; {
	case chosen == nil:
		return ""
	case chosen.value == "":
		return fmt.Sprintf("; no domain of %s has room for its pods, which the job prefers", f.job.Topology.Label)
	default:
		return "; in domain " + f.job.Topology.domain(chosen.value).String()
	}
}

// lackDomain says why a job that requires a domain does not fit on the worker.
func (f *filters) lackDomain(w *Worker) string {
	t, n, avoided := f.job.Topology, w.Nodes, ""
	if avoid := f.job.avoids(w.Name); avoid != "" {
		avoided = fmt.Sprintf("; domain %s is left out, because it did not let the job run in time", t.domain(avoid))
	}
	value := f.nearestDomain(w)
	switch {
	case len(populated(n)) == 0:
		return "the worker has no node that takes pods"
	case len(f.search(w).values(n).values) == 0:
		return fmt.Sprintf("no node has the label %s of the job's topology", t.Label)
	case value == "":
		return fmt.Sprintf("no node with the label %s of the job's topology could take its pods%s", t.Label, avoided)
	}
	lack := f.search(w).gangIn(value).shortfall(n)
	if lack == nil {
		return fmt.Sprintf("the node selectors of its pods name several values of the label %s of the job's topology", t.Label)
	}
	return fmt.Sprintf("in the best domain %s: %s%s", t.domain(value), lack.Message, avoided)
}

// NodesFor returns the nodes of the worker as a job sees them. If only the quota of a Kueue counts for jobs in a
// LocalQueue, the nodes count too for a job that requires a domain: a domain is nodes.
func (w *Worker) NodesFor(job *Job) *Nodes { return w.seen(w.Nodes, job) }

// seen is NodesFor of other nodes of the worker.
func (w *Worker) seen(n *Nodes, job *Job) *Nodes {
	if job.AddNodes == v1alpha1.AddNodesNever {
		n = n.Present()
	}
	n = n.In(QueueOf(job, w.WorkerQueue))
	if job.Topology.IsRequired() {
		return n.withNodes()
	}
	return n
}

// PlacesFor counts the pods of the job that have a place on the worker, as Nodes.Places does. If the job requires a
// domain, it counts them in the domain that has the most places.
func (w *Worker) PlacesFor(job *Job) int64 {
	n, podSets := w.NodesFor(job), job.PodSetsOn(w.Name)
	if job.Topology.IsRequired() {
		nearest := newDomainSearch(job.Topology, podSets).nearest(n, job.avoids(w.Name))
		if nearest == "" {
			return 0
		}
		podSets = job.Topology.within(podSets, nearest)
	}
	return n.Places(podSets)
}

// DemandToHold returns the demand for which Nodes.Hold keeps nodes of the worker free. If the job requires a domain, it
// is the demand in the domain that has the most places now, of those that would fit the job if no job ran there. Jobs
// that get only what Hold leaves them take no place in that domain. So it stays the one with the most places until
// another domain has more.
func (w *Worker) DemandToHold(job *Job, empty *Nodes) []v1alpha1.PodSet {
	t, podSets := job.Topology, job.PodSetsOn(w.Name)
	if !t.IsRequired() {
		return podSets
	}
	s := newDomainSearch(t, podSets)
	s.survey(w.NodesFor(job))
	slices.SortStableFunc(s.domains, func(a, b domain) int { return cmp.Compare(b.places, a.places) })
	for _, d := range s.domains[:min(len(s.domains), maxDomains)] {
		if d.value != job.avoids(w.Name) && s.gangIn(d.value).fits(empty) {
			return t.within(podSets, d.value)
		}
	}
	return podSets
}
