//! Encodes the plan node of `relay_hours` for schedulers and executors.

use crate::engine::Period;
use crate::relay_hours::{Input, RelayHoursExec};
use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{
    AsExecutionPlan, PhysicalExtensionCodec, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{PhysicalPlanNode, UnionExecNode};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Prefix of an encoded node. Encodings of Ballista's own nodes begin differently.
const MARK: &[u8] = b"flashflow relay_hours 3\n";

/// Encodes and decodes the plan node of `relay_hours`, and passes all others to Ballista's codec.
#[derive(Debug, Default)]
pub(super) struct Codec(BallistaPhysicalExtensionCodec);

/// The first line of an encoded node. A union of the plans of its inputs follows, statuses and descriptors alternately. A task gets
/// only the plans of its own ranges.
#[derive(Serialize, Deserialize)]
struct Head {
    projection: Vec<usize>,
    periods: Vec<(String, i64)>,
    totals: Vec<(i64, i64)>,
    /// The ranges of the plans.
    numbers: Vec<u64>,
}

fn broken(error: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::Plan(format!(
        "a node of relay_hours cannot be read ({error}): run one version of flashflow-archive on all machines of the cluster"
    ))
}

impl Codec {
    fn encode(&self, node: &RelayHoursExec, buf: &mut Vec<u8>) -> Result<()> {
        let periods = node.periods.iter().map(|period| (period.name.clone(), period.length_s));
        let mut inputs = (*node.inputs).clone();
        if let Some(numbers) = node.numbers() {
            inputs.retain(|number, _| numbers.contains(number));
        }
        let head = Head {
            projection: node.projection().to_vec(),
            periods: periods.collect(),
            totals: node.totals.to_vec(),
            numbers: inputs.keys().copied().collect(),
        };
        buf.extend_from_slice(MARK);
        serde_json::to_writer(&mut *buf, &head).map_err(broken)?;
        buf.push(b'\n');
        let plans = inputs.values().flat_map(|input| [&input.statuses, &input.descriptors]);
        let plans =
            plans.map(|plan| PhysicalPlanNode::try_from_physical_plan(Arc::clone(plan), self));
        let union = UnionExecNode { inputs: plans.collect::<Result<_>>()? };
        PhysicalPlanNode { physical_plan_type: Some(PhysicalPlanType::Union(union)) }
            .try_encode(buf)
    }

    fn decode(
        &self,
        bytes: &[u8],
        ranges: &Arc<dyn ExecutionPlan>,
        context: &TaskContext,
    ) -> Result<RelayHoursExec> {
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(|| broken("no end"))?;
        let (head, plans) = bytes.split_at(end);
        let head: Head = serde_json::from_slice(head).map_err(broken)?;
        let plans = <PhysicalPlanNode as AsExecutionPlan>::try_decode(&plans[1..])?;
        let Some(PhysicalPlanType::Union(UnionExecNode { inputs })) = plans.physical_plan_type
        else {
            return Err(broken("no inputs"));
        };
        let plan = |node: &PhysicalPlanNode| node.try_into_physical_plan(context, self);
        let input = |pair: &[PhysicalPlanNode; 2]| {
            Ok(Input { statuses: plan(&pair[0])?, descriptors: plan(&pair[1])? })
        };
        let inputs = inputs.as_chunks().0.iter().map(input).collect::<Result<Vec<_>>>()?;
        let inputs = head.numbers.into_iter().zip(inputs).collect();
        let periods = head.periods.into_iter().map(|(name, length_s)| Period { name, length_s });
        RelayHoursExec::new(
            head.projection,
            periods.collect(),
            Arc::new(inputs),
            Arc::new(head.totals),
            Arc::clone(ranges),
        )
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
        match (buf.strip_prefix(MARK), inputs) {
            (Some(bytes), [ranges]) => Ok(Arc::new(self.decode(bytes, ranges, context)?)),
            _ => self.0.try_decode(buf, inputs, context, converter),
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
