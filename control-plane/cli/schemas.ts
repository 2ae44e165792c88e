/** The JSON Schemas that `reachctl schema` prints. */
import type { SchemaNode } from '../../proto/language/reader.ts';
import { controlPlaneSchema } from '../config.ts';
import { operatorsSchema } from '../rules/document.ts';

export const CLI_SCHEMAS: Readonly<Record<string, () => SchemaNode>> = { policies: operatorsSchema, 'control-plane': controlPlaneSchema };
