// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"embed"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/test/simulation/internal/stream"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
)

// Scenario is a fleet, and jobs for it.
type Scenario struct {
	// Fleet of workers.
	Fleet []Workers `json:"fleet"`
	// Jobs that arrive.
	Jobs stream.Spec `json:"jobs"`
	// Load that they offer: the share of all GPUs that they take on average.
	Load float64 `json:"load"`
	// Warmup comes first, while the fleet fills. Then comes the Window, which is measured. In the Cooldown more jobs
	// arrive, so that the last jobs of the window have as much competition as the first.
	Warmup   metav1.Duration `json:"warmup"`
	Window   metav1.Duration `json:"window"`
	Cooldown metav1.Duration `json:"cooldown"`
}

// Workers are workers that are alike.
type Workers struct {
	// Name of the kind. Each worker has a number behind it.
	Name string `json:"name"`
	// Count of workers.
	Count int `json:"count"`
	// Groups of nodes that each has.
	Groups []world.GroupSpec `json:"groups"`
}

//go:embed *.yaml
var builtIn embed.FS

// Names of the scenarios that are built in.
func Names() []string {
	entries, _ := builtIn.ReadDir(".")
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Load reads a scenario from a file, or returns a built-in scenario by its name.
func Load(name string) (*Scenario, error) {
	data, err := builtIn.ReadFile(name + ".yaml")
	if err != nil {
		if data, err = os.ReadFile(name); err != nil {
			if path.Ext(name) == "" {
				return nil, fmt.Errorf("no scenario %q is built in (there are %s), and there is no such file", name, strings.Join(Names(), ", "))
			}
			return nil, err
		}
	}
	s, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("scenario %s: %w", name, err)
	}
	return s, nil
}

func parse(data []byte) (*Scenario, error) {
	s := &Scenario{}
	if err := yaml.UnmarshalStrict(data, s); err != nil {
		return nil, err
	}
	return s, s.validate()
}

// validate returns all faults at once.
func (s *Scenario) validate() error {
	var faults *multierror.Error
	fault := func(format string, args ...any) { faults = multierror.Append(faults, fmt.Errorf(format, args...)) }
	if len(s.Fleet) == 0 {
		fault("fleet: there are no workers")
	}
	names := map[string]bool{}
	for i, w := range s.Fleet {
		if w.Name == "" || names[w.Name] {
			fault("fleet[%d].name is %q, but each kind has a name of its own", i, w.Name)
		}
		names[w.Name] = true
		if w.Count < 1 || len(w.Groups) == 0 {
			fault("fleet[%d] has count %d and %d groups, but at least one of each is needed", i, w.Count, len(w.Groups))
		}
		for j, g := range w.Groups {
			if g.Product == "" || g.Nodes < 1 || g.GPUs < 1 || g.Millicores < 1 {
				fault("fleet[%d].groups[%d]: a product, and at least one node, GPU and millicore are needed", i, j)
			}
		}
	}
	if s.Load <= 0 {
		fault("load is %v, but it is more than 0; 0.85 is 85 %%", s.Load)
	}
	if s.Warmup.Duration < 0 || s.Window.Duration <= 0 || s.Cooldown.Duration < 0 {
		fault("window is more than 0, and warmup and cooldown are not negative")
	}
	if err := s.Jobs.Validate(); err != nil {
		faults = multierror.Append(faults, multierror.Prefix(err, "jobs."))
	}
	if len(faults.WrappedErrors()) == 0 {
		s.validateSizes(fault)
	}
	return faults.ErrorOrNil()
}

// validateSizes finds classes with jobs that no worker could ever run.
func (s *Scenario) validateSizes(fault func(format string, args ...any)) {
	for _, class := range s.Jobs.Classes {
		for _, pool := range s.Pools() {
			if len(class.Products) > 0 && !slices.Contains(class.Products, pool.Product) {
				continue
			}
			if s.most(pool.Product, class.GPUs) < class.Nodes {
				fault("jobs.classes: %s needs %d nodes with %d GPUs of product %s, and no worker has as many", class.Name, class.Nodes,
					class.GPUs, pool.Product)
			}
		}
	}
}

// most is how many pods with so many GPUs fit on the largest worker.
func (s *Scenario) most(product string, gpus int) int {
	most := 0
	for _, w := range s.Fleet {
		pods := 0
		for _, g := range w.Groups {
			if g.Product == product {
				pods += g.Nodes * (g.GPUs / gpus)
			}
		}
		most = max(most, pods)
	}
	return most
}

// Workers returns all workers. The workers of each kind are spread evenly over the list, because some systems ask them
// in that order.
func (s *Scenario) Workers() []world.WorkerSpec {
	type slot struct {
		at   float64
		spec world.WorkerSpec
	}
	var slots []slot
	for _, kind := range s.Fleet {
		for i := range kind.Count {
			slots = append(slots, slot{
				at:   (float64(i) + 0.5) / float64(kind.Count),
				spec: world.WorkerSpec{Name: fmt.Sprintf("%s-%03d", kind.Name, i), Groups: kind.Groups},
			})
		}
	}
	slices.SortStableFunc(slots, func(a, b slot) int { return cmp.Compare(a.at, b.at) })
	specs := make([]world.WorkerSpec, len(slots))
	for i := range slots {
		specs[i] = slots[i].spec
	}
	return specs
}

// Pools returns the GPUs of each product, by product.
func (s *Scenario) Pools() []stream.Pool {
	gpus := map[string]int{}
	for _, w := range s.Fleet {
		for _, g := range w.Groups {
			gpus[g.Product] += w.Count * g.Nodes * g.GPUs
		}
	}
	var pools []stream.Pool
	for _, product := range slices.Sorted(maps.Keys(gpus)) {
		pools = append(pools, stream.Pool{Product: product, GPUs: gpus[product]})
	}
	return pools
}

// Size of the fleet.
func (s *Scenario) Size() (workers, nodes, gpus int) {
	for _, w := range s.Fleet {
		workers += w.Count
		for _, g := range w.Groups {
			nodes += w.Count * g.Nodes
			gpus += w.Count * g.Nodes * g.GPUs
		}
	}
	return workers, nodes, gpus
}

// Measured is the window.
func (s *Scenario) Measured() world.Span {
	return world.Span{From: s.Warmup.Duration, To: s.Warmup.Duration + s.Window.Duration}
}

// End is when the last job arrives.
func (s *Scenario) End() time.Duration { return s.Measured().To + s.Cooldown.Duration }

// Adapt changes jobs that ask for products: they keep the products that the fleet has, and may take any product if it
// has none of them. It returns how many jobs may take any product now.
func (s *Scenario) Adapt(jobs []stream.Job) (anyProduct int) {
	pools := s.Pools()
	for i := range jobs {
		lost := false
		for j := range jobs[i].Pods {
			p := &jobs[i].Pods[j]
			if len(p.Products) == 0 {
				continue
			}
			p.Products = slices.DeleteFunc(p.Products, func(product string) bool {
				return !slices.ContainsFunc(pools, func(pool stream.Pool) bool { return pool.Product == product })
			})
			lost = lost || len(p.Products) == 0
		}
		if lost {
			anyProduct++
		}
	}
	return anyProduct
}
