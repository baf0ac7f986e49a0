//! A rule of the optimizer that meets the requirements of a plan's nodes, in place of DataFusion's.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::enforce_distribution::{
    DistributionContext, PlanWithKeyRequirements, adjust_input_keys_ordering, ensure_distribution,
    reorder_join_keys_to_inputs,
};
use datafusion::physical_optimizer::enforce_sorting::replace_with_order_preserving_variants::{
    OrderPreservationContext, replace_with_order_preserving_variants,
};
use datafusion::physical_optimizer::enforce_sorting::{
    PlanWithCorrespondingCoalescePartitions, PlanWithCorrespondingSort, ensure_sorting,
    parallelize_sorts,
};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// The rule that this one replaces.
const REPLACED: &str = "EnsureRequirements";

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// DataFusion's rule `EnsureRequirements` without its last step, which pushes sorts down.
///
/// In DataFusion 55, that step also pushes the limit of a sort through nodes that change the number of rows, if they happen to be sorted.
/// With a limit between the two stages of an aggregation, duplicates displace rows, and the query returns too few
/// (apache/datafusion#24927; corrected after 55.2). Sorts that are not pushed down are correct where they are. Limits still reach sorts by
/// the rule `LimitPushdown`.
#[derive(Debug)]
pub(super) struct Requirements;

impl Requirements {
    /// These rules, with this one in the place of `EnsureRequirements`.
    pub(super) fn replacing_the_rule_of(rules: Vec<Rule>) -> Vec<Rule> {
        let replaced = |rule: Rule| if rule.name() == REPLACED { Arc::new(Self) } else { rule };
        rules.into_iter().map(replaced).collect()
    }
}

impl PhysicalOptimizerRule for Requirements {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = match config.optimizer.top_down_join_key_reordering {
            true => {
                let plan = PlanWithKeyRequirements::new_default(plan);
                plan.transform_down(adjust_input_keys_ordering).data()?.plan
            }
            false => plan
                .transform_up(|node| Ok(Transformed::yes(reorder_join_keys_to_inputs(node)?)))
                .data()?,
        };
        let plan = DistributionContext::new_default(plan)
            .transform_up(|node| ensure_distribution(node, config))
            .data()?
            .plan;
        let mut plan =
            PlanWithCorrespondingSort::new_default(plan).transform_up(ensure_sorting).data()?.plan;
        if config.optimizer.repartition_sorts {
            let context = PlanWithCorrespondingCoalescePartitions::new_default(plan);
            plan = context.transform_up(parallelize_sorts).data()?.plan;
        }
        let plan = OrderPreservationContext::new_default(plan)
            .transform_up(|node| replace_with_order_preserving_variants(node, false, true, config))
            .data()?
            .plan;
        Ok(plan)
    }

    fn name(&self) -> &'static str {
        REPLACED
    }

    fn schema_check(&self) -> bool {
        true
    }
}
