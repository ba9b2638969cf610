/* SPDX-License-Identifier: MIT */
/* bindings/jax/ffi.h beside XLA's own header: every struct, member and number that the handlers use. Compiled, never run. */
#include <xla/ffi/api/c_api.h>

#include "bindings/jax/ffi.h"

#if XLA_FFI_API_MINOR >= 4 /* by their names of before */
#define XLA_FFI_Extension_Base XLA_FFI_InternalExtension
#define XLA_FFI_Error_GetMessage XLA_FFI_Error_GetDetails
#define XLA_FFI_Error_GetMessage_Args XLA_FFI_Error_GetDetails_Args
#endif

#define AT(ours, member, theirs, their_member)                                                     \
	_Static_assert(offsetof(struct ours, member) == offsetof(theirs, their_member) &&          \
			sizeof(((struct ours *)0)->member) == sizeof(((theirs *)0)->their_member), \
		#ours "." #member)
#define SIZE(ours, theirs) _Static_assert(sizeof(struct ours) == sizeof(theirs), #ours)
#define NUMBER(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)

SIZE(ffi_extension, XLA_FFI_Extension_Base);
AT(ffi_extension, type, XLA_FFI_Extension_Base, type);
NUMBER(FFI_EXTENSION_METADATA, XLA_FFI_Extension_Metadata);
SIZE(ffi_version, XLA_FFI_Api_Version);
AT(ffi_version, major, XLA_FFI_Api_Version, major_version);
AT(ffi_version, minor, XLA_FFI_Api_Version, minor_version);
NUMBER(FFI_VERSION_MAJOR, XLA_FFI_API_MAJOR);
_Static_assert(XLA_FFI_API_MINOR >= FFI_VERSION_MINOR, "XLA's FFI is older");

NUMBER(FFI_IN_COMMAND_BUFFERS, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
NUMBER(FFI_INVALID_ARGUMENT, XLA_FFI_Error_Code_INVALID_ARGUMENT);
NUMBER(FFI_DEADLINE_EXCEEDED, XLA_FFI_Error_Code_DEADLINE_EXCEEDED);
NUMBER(FFI_RESOURCE_EXHAUSTED, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
NUMBER(FFI_FAILED_PRECONDITION, XLA_FFI_Error_Code_FAILED_PRECONDITION);
NUMBER(FFI_ABORTED, XLA_FFI_Error_Code_ABORTED);
NUMBER(FFI_UNIMPLEMENTED, XLA_FFI_Error_Code_UNIMPLEMENTED);
NUMBER(FFI_INTERNAL, XLA_FFI_Error_Code_INTERNAL);

#define DTYPE(name) NUMBER(FFI_##name, XLA_FFI_DataType_##name)
DTYPE(PRED);
DTYPE(S8);
DTYPE(S16);
DTYPE(S32);
DTYPE(S64);
DTYPE(U8);
DTYPE(U16);
DTYPE(U32);
DTYPE(U64);
DTYPE(F16);
DTYPE(F32);
DTYPE(F64);
DTYPE(C64);
DTYPE(BF16);
DTYPE(C128);
DTYPE(F8E5M2);
DTYPE(F8E4M3FN);
DTYPE(F8E4M3B11FNUZ);
DTYPE(F8E5M2FNUZ);
DTYPE(F8E4M3FNUZ);
DTYPE(F8E4M3);
DTYPE(F8E3M4);
DTYPE(F8E8M0FNU);
DTYPE(TOKEN);
DTYPE(S4);
DTYPE(U4);
DTYPE(S2);
DTYPE(U2);
DTYPE(S1);
DTYPE(U1);
DTYPE(F4E2M1FN);

SIZE(ffi_buffer, XLA_FFI_Buffer);
AT(ffi_buffer, dtype, XLA_FFI_Buffer, dtype);
AT(ffi_buffer, data, XLA_FFI_Buffer, data);
AT(ffi_buffer, rank, XLA_FFI_Buffer, rank);
AT(ffi_buffer, dims, XLA_FFI_Buffer, dims);
NUMBER(FFI_BUFFER, XLA_FFI_ArgType_BUFFER);
NUMBER(FFI_BUFFER, XLA_FFI_RetType_BUFFER);
NUMBER(FFI_ATTR_ARRAY, XLA_FFI_AttrType_ARRAY);
NUMBER(FFI_ATTR_SCALAR, XLA_FFI_AttrType_SCALAR);
SIZE(ffi_args, XLA_FFI_Args);
AT(ffi_args, size, XLA_FFI_Args, size);
AT(ffi_args, types, XLA_FFI_Args, types);
AT(ffi_args, args, XLA_FFI_Args, args);
SIZE(ffi_args, XLA_FFI_Rets);
AT(ffi_args, args, XLA_FFI_Rets, rets);
SIZE(ffi_span, XLA_FFI_ByteSpan);
AT(ffi_span, len, XLA_FFI_ByteSpan, len);
SIZE(ffi_scalar, XLA_FFI_Scalar);
AT(ffi_scalar, value, XLA_FFI_Scalar, value);
SIZE(ffi_array, XLA_FFI_Array);
AT(ffi_array, size, XLA_FFI_Array, size);
AT(ffi_array, data, XLA_FFI_Array, data);
SIZE(ffi_attrs, XLA_FFI_Attrs);
AT(ffi_attrs, size, XLA_FFI_Attrs, size);
AT(ffi_attrs, types, XLA_FFI_Attrs, types);
AT(ffi_attrs, names, XLA_FFI_Attrs, names);
AT(ffi_attrs, attrs, XLA_FFI_Attrs, attrs);
NUMBER(FFI_INSTANTIATE, XLA_FFI_ExecutionStage_INSTANTIATE);
NUMBER(FFI_EXECUTE, XLA_FFI_ExecutionStage_EXECUTE);
AT(ffi_frame, api, XLA_FFI_CallFrame, api);
AT(ffi_frame, ctx, XLA_FFI_CallFrame, ctx);
AT(ffi_frame, stage, XLA_FFI_CallFrame, stage);
AT(ffi_frame, args, XLA_FFI_CallFrame, args);
AT(ffi_frame, rets, XLA_FFI_CallFrame, rets);
AT(ffi_frame, attrs, XLA_FFI_CallFrame, attrs);
AT(ffi_frame, future, XLA_FFI_CallFrame, future);
SIZE(ffi_type_id, XLA_FFI_TypeId);
AT(ffi_type_info, deleter, XLA_FFI_TypeInfo, deleter);
AT(ffi_metadata, version, XLA_FFI_Metadata, api_version);
AT(ffi_metadata, traits, XLA_FFI_Metadata, traits);
AT(ffi_metadata, state_type, XLA_FFI_Metadata, state_type_id);
AT(ffi_metadata_extension, metadata, XLA_FFI_Metadata_Extension, metadata);

AT(ffi_error_create, message, XLA_FFI_Error_Create_Args, message);
AT(ffi_error_create, code, XLA_FFI_Error_Create_Args, errc);
AT(ffi_error_message, error, XLA_FFI_Error_GetMessage_Args, error);
AT(ffi_error_message, message, XLA_FFI_Error_GetMessage_Args, message);
AT(ffi_error_destroy, error, XLA_FFI_Error_Destroy_Args, error);
AT(ffi_stream_get, stream, XLA_FFI_Stream_Get_Args, stream);
AT(ffi_type_register, name, XLA_FFI_Type_Register_Args, name);
AT(ffi_type_register, type_id, XLA_FFI_Type_Register_Args, type_id);
AT(ffi_type_register, info, XLA_FFI_Type_Register_Args, type_info);
AT(ffi_state, stage, XLA_FFI_State_Set_Args, stage);
AT(ffi_state, type_id, XLA_FFI_State_Set_Args, type_id);
AT(ffi_state, state, XLA_FFI_State_Set_Args, state);
AT(ffi_state, stage, XLA_FFI_State_Get_Args, stage);
AT(ffi_state, type_id, XLA_FFI_State_Get_Args, type_id);
AT(ffi_state, state, XLA_FFI_State_Get_Args, state);
AT(ffi_future_create, future, XLA_FFI_Future_Create_Args, future);
AT(ffi_future_available, future, XLA_FFI_Future_SetAvailable_Args, future);
AT(ffi_future_error, future, XLA_FFI_Future_SetError_Args, future);
AT(ffi_future_error, error, XLA_FFI_Future_SetError_Args, error);
AT(ffi_run_id, run_id, XLA_FFI_RunId_Get_Args, run_id);
AT(ffi_ordinal, ordinal, XLA_FFI_DeviceOrdinal_Get_Args, device_ordinal);

#define ENTRY(member, theirs) AT(ffi_api, member, XLA_FFI_Api, theirs)
ENTRY(version, api_version);
ENTRY(error_create, XLA_FFI_Error_Create);
ENTRY(error_message, XLA_FFI_Error_GetMessage);
ENTRY(error_destroy, XLA_FFI_Error_Destroy);
ENTRY(stream_get, XLA_FFI_Stream_Get);
ENTRY(type_register, XLA_FFI_Type_Register);
ENTRY(state_set, XLA_FFI_State_Set);
ENTRY(state_get, XLA_FFI_State_Get);
ENTRY(schedule, XLA_FFI_ThreadPool_Schedule);
ENTRY(future_create, XLA_FFI_Future_Create);
ENTRY(future_available, XLA_FFI_Future_SetAvailable);
ENTRY(future_error, XLA_FFI_Future_SetError);
ENTRY(run_id_get, XLA_FFI_RunId_Get);
ENTRY(ordinal_get, XLA_FFI_DeviceOrdinal_Get);
