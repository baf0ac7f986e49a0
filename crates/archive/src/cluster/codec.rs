//! The plan node of `relay_hours` as bytes, for schedulers and executors.

use crate::engine::Period;
use crate::relay_hours::{Input, RelayHoursExec};
use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{
    AsExecutionPlan, PhysicalExtensionCodec, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::PhysicalPlanNode;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Prefix of an encoded node. Encodings of Ballista's own nodes begin differently.
const MARK: &[u8] = b"flashflow relay_hours 1\n";

/// Encodes and decodes the plan node of `relay_hours`, and passes all others to Ballista's codec.
#[derive(Debug, Default)]
pub(super) struct Codec(BallistaPhysicalExtensionCodec);

/// An encoded node without the plans of its inputs, which follow it.
#[derive(Serialize, Deserialize)]
struct Head {
    projection: Vec<usize>,
    periods: Vec<(String, i64)>,
    totals: Vec<(i64, i64)>,
    /// The lengths of the plans: statuses and descriptors of each range.
    plans: Vec<usize>,
}

fn broken(error: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::Plan(format!(
        "a node of relay_hours cannot be read ({error}): run one version of flashflow-lab on all machines of the cluster"
    ))
}

impl Codec {
    fn encode(&self, node: &RelayHoursExec, buf: &mut Vec<u8>) -> Result<()> {
        let mut plans = Vec::new();
        for Input { statuses, descriptors } in &node.inputs {
            for plan in [statuses, descriptors] {
                let plan = PhysicalPlanNode::try_from_physical_plan(Arc::clone(plan), self)?;
                let mut bytes = Vec::new();
                plan.try_encode(&mut bytes)?;
                plans.push(bytes);
            }
        }
        let periods = node.periods.iter().map(|it| (it.name.clone(), it.length_s));
        let head = Head {
            projection: node.projection().to_vec(),
            periods: periods.collect(),
            totals: node.totals.to_vec(),
            plans: plans.iter().map(Vec::len).collect(),
        };
        buf.extend_from_slice(MARK);
        serde_json::to_writer(&mut *buf, &head).map_err(broken)?;
        buf.push(b'\n');
        buf.extend(plans.concat());
        Ok(())
    }

    fn decode(&self, bytes: &[u8], context: &TaskContext) -> Result<RelayHoursExec> {
        let end = bytes.iter().position(|it| *it == b'\n').ok_or_else(|| broken("no end"))?;
        let (head, mut rest) = bytes.split_at(end + 1);
        let head: Head = serde_json::from_slice(head).map_err(broken)?;
        let mut plans = Vec::new();
        for len in head.plans {
            let (plan, after) = rest.split_at_checked(len).ok_or_else(|| broken("it is cut"))?;
            rest = after;
            let plan = <PhysicalPlanNode as AsExecutionPlan>::try_decode(plan)?;
            plans.push(plan.try_into_physical_plan(context, self)?);
        }
        let mut inputs = Vec::new();
        let mut plans = plans.into_iter();
        while let (Some(statuses), Some(descriptors)) = (plans.next(), plans.next()) {
            inputs.push(Input { statuses, descriptors });
        }
        let periods = head.periods.into_iter().map(|(name, length_s)| Period { name, length_s });
        RelayHoursExec::new(head.projection, periods.collect(), inputs, head.totals)
    }
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match buf.strip_prefix(MARK) {
            Some(bytes) => Ok(Arc::new(self.decode(bytes, context)?)),
            None => self.0.try_decode(buf, inputs, context, converter),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        match node.downcast_ref::<RelayHoursExec>() {
            Some(node) => self.encode(node, buf),
            None => self.0.try_encode(node, buf, converter),
        }
    }
}
