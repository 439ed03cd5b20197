// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Agent says what runs the TrainJobs of a worker.
type Agent string

// The values of --agent.
const (
	// AgentAuto is AgentTrainer where Kubeflow Trainer is installed, and else AgentTrainyard.
	AgentAuto Agent = "auto"
	// AgentTrainyard installs the worker-agent.
	AgentTrainyard Agent = "trainyard"
	// AgentTrainer leaves TrainJobs to a Kubeflow Trainer that is there.
	AgentTrainer Agent = "trainer"
	// AgentNone installs nothing that runs TrainJobs, and looks for nothing.
	AgentNone Agent = "none"
)

// Agents are the values of --agent.
func Agents() []string {
	return []string{string(AgentAuto), string(AgentTrainyard), string(AgentTrainer), string(AgentNone)}
}

const (
	// DefaultTokenLife is how long a token of the hub lives. The manager renews it before half of that is over, so the hub
	// can be off for half a week.
	DefaultTokenLife = 7 * 24 * time.Hour
	// MinTokenLife is the shortest life that an API server gives a token.
	MinTokenLife = 10 * time.Minute
)

// Options say what is to be registered.
type Options struct {
	// Name is the name of the WorkerCluster.
	Name string
	// Namespace is the namespace of the manager on the hub.
	Namespace string
	// ManagerAccount is the manager's service account in that namespace.
	ManagerAccount string
	// Server is the address at which the hub reaches the worker, or empty for the address in the caller's kubeconfig.
	Server string
	// Labels and Prices are "key=value". What is not named stays as it is.
	Labels, Prices []string
	Agent          Agent
	// AgentImage is the image of the agent, or empty for the present one.
	AgentImage string
	// CopyCRDs copies the CRDs of Kubeflow Trainer from the hub to a worker that lacks them.
	CopyCRDs bool
	// Logs, Exec, Lookup, Dependencies and Pins grant the rights of config.WorkerLogs, config.WorkerExec, config.WorkerLookup,
	// config.WorkerDependencies and config.WorkerPins. What an earlier join has granted stays without them.
	Logs, Exec, Lookup, Dependencies, Pins bool
	TokenLife                              time.Duration
}

// Validate returns all faults of the options, a line for each.
func (o *Options) Validate() error {
	var all *multierror.Error
	fault := func(format string, args ...any) { all = multierror.Append(all, fmt.Errorf(format, args...)) }
	if faults := validation.IsDNS1123Subdomain(o.Name); len(faults) > 0 {
		fault("NAME is %q: must be lower case letters, digits, '-' and '.', and begin and end with a letter or digit", o.Name)
	}
	if faults := validation.IsDNS1123Label(o.Namespace); len(faults) > 0 {
		fault("--namespace is %q: must be the name of a namespace", o.Namespace)
	}
	if !slices.Contains(Agents(), string(o.Agent)) {
		fault("--agent is %q: must be one of %s", o.Agent, strings.Join(Agents(), ", "))
	}
	if o.AgentImage != "" && (o.Agent == AgentTrainer || o.Agent == AgentNone) {
		fault("--agent-image is %q: no agent is installed with --agent=%s", o.AgentImage, o.Agent)
	}
	if o.TokenLife < MinTokenLife {
		fault("--token-life is %s: must be at least %s", o.TokenLife, MinTokenLife)
	}
	for _, label := range o.Labels {
		if message := labelFault(label); message != "" {
			fault("--label is %q: %s", label, message)
		}
	}
	for _, price := range o.Prices {
		key, value, _ := strings.Cut(price, "=")
		if quantity, err := resource.ParseQuantity(value); key == "" || err != nil || quantity.Sign() < 0 {
			fault("--price is %q: must be RESOURCE=AMOUNT, such as nvidia.com/gpu=2.5, and not negative", price)
		}
	}
	if all != nil {
		all.ErrorFormat = lines
	}
	return all.ErrorOrNil()
}

func labelFault(label string) string {
	key, value, found := strings.Cut(label, "=")
	if !found {
		return "must be KEY=VALUE"
	}
	if faults := validation.IsQualifiedName(key); len(faults) > 0 {
		return faults[0]
	}
	if faults := validation.IsValidLabelValue(value); len(faults) > 0 {
		return faults[0]
	}
	return ""
}

func lines(errs []error) string {
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "\n")
}

// pairs returns "key=value" texts as a map, which is nil without texts.
func pairs(texts []string) map[string]string {
	if len(texts) == 0 {
		return nil
	}
	values := map[string]string{}
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		values[key] = value
	}
	return values
}

// secretName is the name of the Secret with the kubeconfig of a worker.
func secretName(worker string) string { return worker + "-kubeconfig" }

// renewalRole is the name of the Role that lets the manager write that Secret, and of its RoleBinding.
func renewalRole(worker string) string { return "trainyard-renew-" + worker }

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// labelHub is the hub's ID on the Secret to which the hub's tokens are bound.
const labelHub = v1alpha1.LabelHub
